/*
 * serves.c: what a spec of linear attention may have that not every template takes, as rows that bits of the
 * columns in templates.c stand for; and how much shared memory a block may have. In: a request. Out: yes, or
 * a sentence.
 */
#include "gen/linear/columns.h"
#include "gen/linear/lower.h"
#include "gen/linear/template.h"

#include <inttypes.h>
#include <stdio.h>

enum { MOST_NORMALISED = 256 };

#define LINEAR_SLOT(ID, slot, ...)                                                                           \
    static bool has_##slot(const struct kernel_request *r, char *said)                                       \
    {                                                                                                        \
        *said = '\0';                                                                                        \
        return r->ir->linear.slot.n_roots > 0;                                                               \
    }
#include "gen/ir/linear_slots.def"
#undef LINEAR_SLOT

static bool decays_by_key(const struct kernel_request *r, char *said)
{
    *said = '\0';
    return linear_decay_form(r->ir) == DECAY_KEY;
}

static bool decays_by_value(const struct kernel_request *r, char *said)
{
    *said = '\0';
    return linear_decay_form(r->ir) == DECAY_VALUE;
}

static bool is_normalised(const struct kernel_request *r, char *said)
{
    *said = '\0';
    return r->ir->linear.normalise;
}

static bool is_normalised_in_f16(const struct kernel_request *r, char *said)
{
    return is_normalised(r, said) && r->problem->dtype[DTYPE_Q] == LATHE_F16;
}

/* Value channels go in bands there, and what flows back to a divisor is of all of them. */
static bool is_normalised_and_wide(const struct kernel_request *r, char *said)
{
    const int64_t d_v = r->problem->dim[SYM_D_V];
    if (r->pass != LATHE_BACKWARD || !is_normalised(r, said) || d_v <= MOST_NORMALISED)
        return false;
    snprintf(said, SAID_BYTES, "a normaliser beside d_v = %" PRId64, d_v);
    return true;
}

static bool has_bonus_and_normaliser(const struct kernel_request *r, char *said)
{
    return is_normalised(r, said) && has_bonus(r, said);
}

static bool sees_all_tokens(const struct kernel_request *r, char *said)
{
    *said = '\0';
    return r->ir->linear.all_tokens;
}

static bool wants_scale_gradient(const struct kernel_request *r, char *said)
{
    *said = '\0';
    return r->pass == LATHE_BACKWARD && r->linear->back.site[OF_SCALE].n > 0;
}

static bool reads_first(const struct kernel_request *r, char *said)
{
    *said = '\0';
    return r->ir->linear.read_first;
}

static bool keeps_states(const struct kernel_request *r, char *said)
{
    *said = '\0';
    return problem_has_named(r->sig, r->problem, "states_index");
}

/* Both read the state before the decay. */
static bool wants_value_decay_gradient(const struct kernel_request *r, char *said)
{
    return r->pass == LATHE_BACKWARD && r->linear->back.site[OF_DECAY].n > 0 && decays_by_value(r, said) &&
           (has_bonus(r, said) || reads_first(r, said));
}

const struct feature linear_features[] = {
#define LINEAR_SLOT(ID, slot, ...) [LINEAR_HAS_##ID] = {"slot " #slot, has_##slot, "no slot " #slot, NULL},
#include "gen/ir/linear_slots.def"
#undef LINEAR_SLOT
    [LINEAR_HAS_KEY_DECAY] = {"a decay per key channel", decays_by_key, NULL, NULL},
    [LINEAR_HAS_VALUE_DECAY] = {"a decay per value channel", decays_by_value, NULL, NULL},
    [LINEAR_HAS_NORMALISER] = {"a normaliser", is_normalised, NULL, NULL},
    [LINEAR_HAS_F16_NORMALISER] = {"a normaliser in f16", is_normalised_in_f16, NULL,
                                   "gradients are divided by sums of keys, for which bf16 has the range"},
    [LINEAR_HAS_WIDE_NORMALISER] = {"a normaliser beside d_v above 256", is_normalised_and_wide, NULL,
                                    "with d_v up to 256 kernels divide"},
    [LINEAR_HAS_BONUS_NORMALISED] = {"a bonus beside a normaliser", has_bonus_and_normaliser, NULL, NULL},
    [LINEAR_HAS_ALL_TOKENS] = {"causal = false", sees_all_tokens, NULL, NULL},
    [LINEAR_HAS_SCALE_GRADIENT] = {"a gradient of a scale", wants_scale_gradient, NULL,
                                   "leave the scale's inputs without grad = true"},
    [LINEAR_HAS_VALUE_DECAY_GRADIENT] =
        {"a gradient of a decay by value channel beside a bonus or read_first", wants_value_decay_gradient,
         NULL,
         "leave the inputs of the decay without grad = true, or let it vary "
         "with at.i"},
    [LINEAR_HAS_READ_FIRST] = {"read_first = true", reads_first, NULL, NULL},
    [LINEAR_HAS_STATES] = {"states behind tokens", keeps_states, "no states behind tokens", NULL},
    {NULL, NULL, NULL, NULL}};

bool linear_has_room(const struct kernel_request *r, int bytes, char *why)
{
    if (bytes <= r->device->smem_bytes)
        return true;
    snprintf(why, REASON_BYTES, "needs %d bytes of shared memory, and there are %d", bytes,
             r->device->smem_bytes);
    return false;
}
