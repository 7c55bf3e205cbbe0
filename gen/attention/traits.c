/*
 * traits.c: what kernels of attention are made of, by template. In: a plan. Out: traits, and constants of the
 * config that a backward pass of their kind has.
 */
#include "gen/attention/traits.h"
#include "gen/base/text.h"
#include "gen/plan/plan.h"
#include "gen/plan/request.h"

static void constants_portable(struct text_buf *t, const struct plan *plan)
{
    (void)plan;
    text_add(t, "constexpr bool BACK_WGMMA = false;\n");
}

static void constants_sm90(struct text_buf *t, const struct plan *plan)
{
    const struct back_plan *b = &plan->attention.back;
    text_add(t,
             "constexpr bool BACK_WGMMA = true;\n"
             "constexpr int BACK_V_STEPS = %d, BACK_SEQUENCE_BYTES = %d;\nconstexpr bool BACK_EARLY_DV = "
             "%s;\n"
             "constexpr bool BOUND_WAITS = %s;\n",
             b->v_steps, b->sequence_bytes, yes(b->early_dv), yes(plan->bound_waits));
    if (b->slabs > 0)
        text_add(t, "constexpr int BACK_SLABS = %d, BACK_KEY_PLACES = %d;\n", b->slabs, b->key_places);
}

enum { LOADERS = 4, WARPGROUP_ROWS = 64 }; /* of kernels with a warpgroup that loads */
const struct attention_traits attention_portable = {.constants = constants_portable};
const struct attention_traits attention_portable_back = {.constants = constants_portable,
                                                         .queries_apart = true};
const struct attention_traits attention_forward_sm90 = {.loader_warps = LOADERS,
                                                        .tensor_maps = true,
                                                        .map_rows = WARPGROUP_ROWS,
                                                        .map_ranges = true,

                                                        .shares = true,
                                                        .fuses = true};
#define BACK_SM90                                                                                            \
    .loader_warps = LOADERS, .tensor_maps = true, .shares = true, .pair_steps = true, .cuts_blocks = true,   \
    .dq_unstaged = true, .record_rows = WARPGROUP_ROWS, .constants = constants_sm90
const struct attention_traits attention_narrow_sm90 = {.key_parts = 2, BACK_SM90};
const struct attention_traits attention_wide_sm90 = {.row_parts = 2, BACK_SM90};

const struct attention_traits attention_latent_sm90 = {.loader_warps = LOADERS,
                                                       .tensor_maps = true,
                                                       .dq_unstaged = true,
                                                       .record_rows = WARPGROUP_ROWS,
                                                       .constants = constants_sm90};

const struct attention_traits *attention_forward_traits(const struct plan *plan)
{
    return plan->row->pass == LATHE_FORWARD ? plan->row->attention : &attention_portable;
}

int attention_record_bytes(const struct plan *plan)
{
    enum { RECORD_BYTES = 16 };
    const int rows = plan->row->attention->record_rows;
    return rows > 0 ? plan->attention.back.bm / rows * RECORD_BYTES : 0;
}

/* Rows that are taken at any sizes are whole. */
bool attention_whole_rows(const struct kernel_request *r)
{
    const unsigned set = isas_of(r->device);
    const int64_t dim[] = {r->problem->dim[SYM_D], r->problem->dim[SYM_D_V]};
    bool any = false;
    for (const struct template_row *t = r->templates; t->name; t++) {
        bool holds = t->pass == r->pass && isa_among(t->isa, set) && !t->serves.chosen_for;
        for (int i = 0; i < 2 && holds; i++)
            holds = dim[i] <= t->serves.dim[i].most && dim[i] % t->serves.dim[i].step == 0;
        any = any || holds;
    }
    return any;
}
