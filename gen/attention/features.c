/*
 * features.c: what a request for attention has that not every template takes. In: a request, lowered. Out:
 * yes or no, and how a refusal begins. Features of one pass are not there in the others.
 */
#include "gen/attention/features.h"
#include "gen/arguments/problem.h"
#include "gen/arguments/signature.h"
#include "gen/attention/columns.h"
#include "gen/attention/kernel.h"
#include "gen/attention/sign_parts.h"
#include "gen/ir/spec.h"
#include "gen/plan/request.h"
#include "gen/plan/serves.h"

#include <inttypes.h>
#include <stdio.h>

static bool is_odd(int64_t dim)
{
    return dim % ATTENTION_DIM_STEP != 0;
}

static bool has_odd_dim(const struct kernel_request *r)
{
    return is_odd(r->problem->dim[SYM_D]) || is_odd(r->problem->dim[SYM_D_V]);
}

static bool has_named(const struct kernel_request *r, const char *name)
{
    return problem_has_named(r->sig, r->problem, name);
}

static bool is_unaligned(const struct kernel_request *r, const char *name)
{
    return arg_in(r->problem->unaligned, lathe__arg_find(r->sig, name, 0));
}

/* In the backward pass keys are copied out of their pages, and kernels know nothing of these. */
static bool reads_pages(const struct kernel_request *r)
{
    return r->problem->paged && r->pass != LATHE_BACKWARD;
}

bool attention_has_sequences(const struct kernel_request *r)
{
    return reads_pages(r) || has_named(r, "cu_q") || has_named(r, "used_kv");
}

/* Which lists a sentence names. */
static const char *given_lists(const struct kernel_request *r)
{
    return reads_pages(r) ? "pages are given" : has_named(r, "cu_q") ? "cu_q is given" : "used_kv is given";
}

/* ---- of any pass --------------------------------------------------------------------------------- */

static bool has_packed(const struct kernel_request *r, char *said)
{
    snprintf(said, SAID_BYTES, "cu_q is given");
    return has_named(r, "cu_q");
}

static bool has_used(const struct kernel_request *r, char *said)
{
    snprintf(said, SAID_BYTES, "used_kv is given without cu_q");
    return has_named(r, "used_kv") && !has_named(r, "cu_q") && !reads_pages(r);
}

static bool has_pages(const struct kernel_request *r, char *said)
{
    snprintf(said, SAID_BYTES, "pages are given");
    return r->problem->paged;
}

static bool has_odd_pages(const struct kernel_request *r, char *said)
{
    snprintf(said, SAID_BYTES, "pages of %" PRId64 " keys; TMA reads those of 16, 32, 64, 128 and 256",
             r->problem->dim[SYM_PAGE]);
    return (lathe__lengths(r->problem) & LENGTHS_ODD_PAGES) != 0;
}

static bool has_pair(const struct kernel_request *r, char *said)
{
    snprintf(said, SAID_BYTES, "qk2 = true: q2 and k2 are given beside q and k");
    return r->ir->qk2;
}

static bool has_v_is_k(const struct kernel_request *r, char *said)
{
    snprintf(said, SAID_BYTES, "v is k's memory");
    return r->ir->v_is_k;
}

/* A forward kernel in front of a backward pass copies rows of k, of which v is none. */
static bool has_odd_v_is_k(const struct kernel_request *r, char *said)
{
    const int64_t d = r->problem->dim[SYM_D];
    const int64_t dv = r->problem->dim[SYM_D_V];
    const bool copied = r->pass == LATHE_BACKWARD && r->attention->runs_forward && d <= ATTENTION_MOST_DIM &&
                        dv <= ATTENTION_MOST_DIM;
    snprintf(said, SAID_BYTES, "%s = %d; beside a v that is k's memory it takes multiples of %d",
             is_odd(d) ? "d" : "d_v", (int)(is_odd(d) ? d : dv), ATTENTION_DIM_STEP);
    return r->pass != LATHE_COMBINE && r->ir->v_is_k && has_odd_dim(r) && !copied;
}

/* Of tensors that a kernel reads and writes where they are. */
static bool has_folded(const struct kernel_request *r, char *said)
{
    static const char *const name[] = {"q", "k", "v", "o", "do"}; /* in the order of mods */
    for (size_t t = 0; t < sizeof name / sizeof *name; t++) {
        const int arg = lathe__arg_find(r->sig, name[t], 0);
        const bool moved = lathe__narrow_dtype(r->sig, r->problem, name[t]) != LATHE_NONE ||
                           (t < MOD_COUNT && r->ir->mod[t].n_stages > 0) || (r->ir->qk2 && t <= MOD_KEY) ||
                           (r->problem->paged && !reads_pages(r) && (t == MOD_KEY || t == MOD_VALUE));
        if (arg < 0 || moved || !arg_in(r->problem->folded & ~r->problem->unaligned, arg))
            continue;
        snprintf(said, SAID_BYTES,
                 "%s is folded: a stride of 0, below it or of 2^40 bytes and more, or sequences that are not "
                 "whole tokens apart or more than 2^30, which TMA does not take",
                 name[t]);
        return true;
    }
    return false;
}

// NOLINTNEXTLINE(readability-non-const-parameter): the type of a feature
static bool has_combine(const struct kernel_request *r, char *said)
{
    (void)said;
    return r->attention->parts != NULL;
}

/* ---- masks that list blocks ---------------------------------------------------------------------- */

static const struct selected_blocks *lists_of(const struct kernel_request *r)
{
    const struct ir *w = r->pass == LATHE_BACKWARD ? r->attention->backward : r->attention->parts;
    return w && w->lowered.selected.n > 0 ? &w->lowered.selected : NULL;
}

// NOLINTNEXTLINE(readability-non-const-parameter): the type of a feature
static bool has_lists(const struct kernel_request *r, char *said)
{
    (void)said;
    return lists_of(r) != NULL;
}

static bool has_odd_lists(const struct kernel_request *r, char *said)
{
    enum { STEP = 16 };
    const struct selected_blocks *of = lists_of(r);
    snprintf(said, SAID_BYTES, "blocks are of %d keys; it takes multiples of %d", of ? of->keys : 0, STEP);
    return r->pass == LATHE_BACKWARD && of && of->keys % STEP != 0;
}

/* ---- of the backward pass ------------------------------------------------------------------------ */

static bool has_one_order(const struct kernel_request *r, char *said)
{
    snprintf(said, SAID_BYTES, "deterministic is asked for, and it sums dq, dk and dv by fp32 atomics");
    return r->pass == LATHE_BACKWARD && r->problem->deterministic;
}

static bool has_pair_sums(const struct kernel_request *r, char *said)
{
    snprintf(said, SAID_BYTES, "pairs add to gradients of inputs, and its tiles have rows of several heads");
    return r->pass == LATHE_BACKWARD && r->attention->back.pair.n > 0;
}

static bool has_ordered_sequences(const struct kernel_request *r, char *said)
{
    snprintf(said, SAID_BYTES, "%s, and deterministic is asked for: its blocks take no turns by sequence",
             given_lists(r));
    return r->pass == LATHE_BACKWARD && r->problem->deterministic && attention_has_sequences(r);
}

static bool has_ordered_inputs(const struct kernel_request *r, char *said)
{
    bool wanted = false;
    for (int i = 0; i < r->ir->n_inputs; i++) {
        char name[NAME_MAX_BYTES + 2];
        snprintf(name, sizeof name, "d%s", r->ir->input[i].name);
        wanted |= r->ir->input[i].grad && has_named(r, name);
    }
    snprintf(said, SAID_BYTES,
             "%s, deterministic is asked for, and inputs have gradients, to which sequences add in any order",
             given_lists(r));
    return r->pass == LATHE_BACKWARD && r->problem->deterministic && attention_has_sequences(r) && wanted;
}

/* Where a mod or zeros behind its rows do not move it. */
static bool has_unaligned_do(const struct kernel_request *r, char *said)
{
    snprintf(said, SAID_BYTES, "%s, and rows of do do not start at multiples of 16 bytes", given_lists(r));
    return r->pass == LATHE_BACKWARD && attention_has_sequences(r) && is_unaligned(r, "do") &&
           r->ir->mod[MOD_OUTPUT].n_stages == 0 && !is_odd(r->problem->dim[SYM_D_V]);
}

/* ---- what no template takes ---------------------------------------------------------------------- */

static bool has_kept_sequences(const struct kernel_request *r, char *said)
{
    snprintf(said, SAID_BYTES, "%s, and such a launch has no map for mask_kept to keep", given_lists(r));
    return attention_has_sequences(r) && has_named(r, "mask_kept");
}

static bool has_mods_of_pages(const struct kernel_request *r, char *said)
{
    const bool key = r->ir->mod[MOD_KEY].n_stages > 0;
    snprintf(said, SAID_BYTES, "pages are given beside a mod of %s, which is not made anew of a whole pool",
             key ? "k" : "v");
    return r->problem->paged && (key || r->ir->mod[MOD_VALUE].n_stages > 0);
}

static bool has_unaligned_pages(const struct kernel_request *r, char *said)
{
    const bool key = is_unaligned(r, "k");
    snprintf(said, SAID_BYTES, "pages are given, and rows of %s do not start at multiples of 16 bytes",
             key ? "k" : "v");
    return r->problem->paged && (key || is_unaligned(r, "v"));
}

static bool is_narrow(const struct kernel_request *r, const char *name)
{
    return lathe__narrow_dtype(r->sig, r->problem, name) != LATHE_NONE;
}

static bool has_narrow_pages(const struct kernel_request *r, char *said)
{
    const char *const name = is_narrow(r, "k") ? "k" : "v";
    snprintf(said, SAID_BYTES, "pages are given, and %s is of %s, which is not widened of a whole pool", name,
             lathe_dtype_text(lathe__narrow_dtype(r->sig, r->problem, name)));
    return reads_pages(r) && (is_narrow(r, "k") || is_narrow(r, "v"));
}

/* Kernels make such keys anew where they widen them, and gradients not at all. */
static bool has_mod_of_pair(const struct kernel_request *r, char *said)
{
    const bool key = r->ir->mod[MOD_KEY].n_stages > 0;
    const bool backward = r->pass == LATHE_BACKWARD && (r->ir->qk2 || r->ir->v_is_k);
    if (backward)
        snprintf(said, SAID_BYTES, "key_mod of %s has gradients on the host device alone",
                 r->ir->qk2 ? "a k beside k2" : "keys that are values");
    else
        snprintf(said, SAID_BYTES, "key_mod is given beside k2, and k is not of 8 bits");
    return key && (backward || (r->pass == LATHE_FORWARD && r->ir->qk2 && !is_narrow(r, "k")));
}

/* An adjoint reads rows ahead of their mod, as numbers of the dtype of q. */
static bool has_narrow_adjoints(const struct kernel_request *r, char *said)
{
    const bool key = is_narrow(r, "k") && r->ir->mod[MOD_KEY].n_stages > 0;
    snprintf(said, SAID_BYTES, "%s is of 8 bits and has a mod", key ? "k" : "v");
    return r->pass == LATHE_BACKWARD && (key || (is_narrow(r, "v") && r->ir->mod[MOD_VALUE].n_stages > 0));
}

// NOLINTNEXTLINE(readability-non-const-parameter): the type of a feature
static bool has_narrow_query(const struct kernel_request *r, char *said)
{
    (void)said;
    return is_narrow(r, "q");
}

/* Parts are written where they are to lie, two floats at a time. */
static bool has_unaligned_parts(const struct kernel_request *r, char *said)
{
    snprintf(said, SAID_BYTES, "rows of part_o do not start at multiples of 16 bytes");
    return r->pass == LATHE_FORWARD && makes_parts(r->sig, r->problem) && is_unaligned(r, "part_o");
}

static bool has_sized_input(const struct kernel_request *r)
{
    bool sized = false;
    for (int i = 0; i < r->ir->n_inputs; i++)
        for (int d = 0; d < r->ir->input[i].n_dims; d++)
            sized |= r->ir->input[i].dim[d].sym == SYM_D || r->ir->input[i].dim[d].sym == SYM_D_V;
    return sized;
}

/* Copies of rows with zeros behind them have no room for what else could become of them. */
static bool has_odd_dims(const struct kernel_request *r, char *said)
{
    bool mods = false;
    for (int m = r->pass == LATHE_COMBINE ? MOD_OUTPUT : MOD_QUERY; m < MOD_COUNT; m++)
        mods |= r->ir->mod[m].n_stages > 0;
    const bool combine = r->pass == LATHE_COMBINE;
    const bool sized = !combine && has_sized_input(r);
    const bool parts = !combine && makes_parts(r->sig, r->problem);
    snprintf(said, SAID_BYTES, "a head dim is no multiple of %d, and there are %s", ATTENTION_DIM_STEP,
             mods    ? "mods of q, k, v or o"
             : sized ? "inputs with a head dim"
             : parts ? "parts of rows"
                     : "keys in pages");
    return (combine ? is_odd(r->problem->dim[SYM_D_V]) : has_odd_dim(r)) &&
           (mods || sized || parts || (!combine && r->problem->paged));
}

static bool has_odd_pair(const struct kernel_request *r, char *said)
{
    const int64_t d2 = r->problem->dim[SYM_D2];
    snprintf(said, SAID_BYTES, "a head dim is no multiple of %d, beside q2 and k2", ATTENTION_DIM_STEP);
    return r->pass != LATHE_COMBINE && r->ir->qk2 &&
           (is_odd(d2) || is_odd(r->problem->dim[SYM_D] - d2) || is_odd(r->problem->dim[SYM_D_V]));
}

/* ---- the table ----------------------------------------------------------------------------------- */

#define NO_LISTS                                                                                             \
    "the mask is not an interval of keys and a list of up to 128 blocks of them, as that of nsa_selected"
#define NO_COMBINE "the online function gives no combine, so the keys of a row cannot be shared out"
const struct feature attention_features[] = {
    [HAS_PACKED] = {.name = "packed sequences", .has = has_packed},
    [HAS_USED] = {.name = "lengths of batches", .has = has_used},
    [HAS_PAGES] = {.name = "keys in pages", .has = has_pages},
    [HAS_ODD_PAGES] = {.name = "pages of any size", .has = has_odd_pages},
    [HAS_PAIR] = {.name = "q2 and k2", .has = has_pair},
    [HAS_V_IS_K] = {.name = "values in keys", .has = has_v_is_k, .missing = "v has memory of its own"},
    [HAS_ODD_V_IS_K] = {.name = "such values with odd head dims", .has = has_odd_v_is_k},
    [HAS_FOLDED] = {.name = "any strides", .has = has_folded},
    [HAS_COMBINE] = {.name = "online functions with a combine", .has = has_combine, .missing = NO_COMBINE},
    [HAS_LISTS] = {.name = "masks that list blocks of keys", .has = has_lists, .missing = NO_LISTS},
    [HAS_ODD_LISTS] = {.name = "lists of blocks of any number of keys", .has = has_odd_lists},
    [HAS_ONE_ORDER] = {.name = "deterministic sums", .has = has_one_order},
    [HAS_PAIR_SUMS] = {.name = "gradients of inputs that pairs read", .has = has_pair_sums},
    [HAS_ORDERED_SEQUENCES] = {.name = "deterministic sums of sequences", .has = has_ordered_sequences},
    [HAS_ORDERED_INPUTS] = {.name = "deterministic gradients of inputs beside sequences",
                            .has = has_ordered_inputs,
                            .instead = "leave out deterministic, or the gradients of these inputs"},
    [HAS_UNALIGNED_DO] = {.name = "sequences with unaligned rows of do",
                          .has = has_unaligned_do,
                          .instead = "align them"},
    [HAS_KEPT_SEQUENCES] = {.name = "mask_kept beside sequences",
                            .has = has_kept_sequences,
                            .instead = "leave it out"},
    [HAS_MODS_OF_PAGES] = {.name = "mods of keys in pages",
                           .has = has_mods_of_pages,
                           .instead = "keep them in pages as the mod has made them"},
    [HAS_UNALIGNED_PAGES] = {.name = "unaligned rows in pages",
                             .has = has_unaligned_pages,
                             .instead = "align them"},
    [HAS_UNALIGNED_PARTS] = {.name = "unaligned parts of rows",
                             .has = has_unaligned_parts,
                             .instead = "align them"},
    [HAS_ODD_DIMS] = {.name = "head dims of any size beside mods, inputs with one, parts and pages",
                      .has = has_odd_dims,
                      .instead = "pad it"},
    [HAS_ODD_PAIR] = {.name = "head dims of any size beside q2 and k2",
                      .has = has_odd_pair,
                      .instead = "pad it"},
    [HAS_NARROW_PAGES] =
        {.name = "keys of 8 bits in pages",
         .has = has_narrow_pages,
         .instead =
             "keep them in pages as bf16, or in rows of up to 256 numbers that start at multiples of 16 "
             "bytes, without mods",
         .missing = "neither k nor v is of 8 bits in pages"},
    [HAS_MOD_OF_PAIR] = {.name = "key_mod beside q2 and k2, or of values in keys",
                         .has = has_mod_of_pair,
                         .instead = "give k as the mod has made it"},
    [HAS_NARROW_ADJOINTS] = {.name = "gradients of mods of keys of 8 bits",
                             .has = has_narrow_adjoints,
                             .instead =
                                 "put scales into scores and weights, or give the same numbers as bf16"},
    [HAS_NARROW_QUERY] = {.name = "queries of 8 bits",
                          .has = has_narrow_query,
                          .missing = "q is not of f8e4m3"},
    {.name = NULL},
};
