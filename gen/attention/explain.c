/*
 * explain.c: the numbers of a plan for `lathe explain`, and of how many parts its work is. In: a plan. Out:
 * facts.
 */
#include "gen/attention/columns.h"
#include "gen/attention/kernel.h"
#include "gen/base/facts.h"
#include "gen/plan/plan.h"
#include "runtime/recipe/bind.h"

static void explain_narrow(struct facts *f, const struct plan *plan)
{
    const char *const said =
        plan->attention.reads_narrow ? "of 8 bits, and widened to the dtype of q by the kernel as it reads"
        : plan->attention.gathers
            ? "of 8 bits, and widened to the dtype of q ahead of the kernel, which copies the keys in use "
              "out "
              "of their pages: the workspace has room for those of all places of the table"
            : "of 8 bits, and widened to the dtype of q in the workspace ahead of the kernel, of batches and "
              "sequences their keys in use: less memory at rest, but more bytes moved than of 16 bits";
    if (!plan->attention.narrow)
        return;
    facts_string(f, "caches", said);
    facts_line(f, "  caches        %s %s\n", plan->attention.narrow, said);
    if (!plan->attention.factors)
        return;
    facts_string(f, "factors", plan->attention.factors);
    facts_line(f, "  factors       %s\n", plan->attention.factors);
}

static void explain_tiles(struct facts *f, const struct plan *plan)
{
    const struct attention_plan *a = &plan->attention;
    const struct back_plan *back = &a->back;
    const bool backward = plan->row->form == PLAN_ATTENTION_BACK;
    const int bm = backward ? back->bm : a->bm;
    const int bn = backward ? back->bn : a->bn;
    const int stages = backward ? back->stages : a->stages;
    const int warps = backward ? back->warps : a->warps;
    const int smem = backward ? back->smem_bytes : a->smem_bytes;
    facts_open(f, "tiles", '{');
    facts_integer(f, "queries", bm);
    facts_integer(f, "keys", bn);
    facts_integer(f, "stages", stages);
    facts_integer(f, "warps", warps);
    facts_close(f);
    facts_integer(f, "shared_memory", smem);
    facts_line(
        f, "  tiles         %d query rows x %d keys, %d stages, %d warps; head dims padded to %d and %d\n",
        bm, bn, stages, warps, backward ? back->dk : a->d_pad, backward ? back->dv : a->dv_pad);
    facts_line(f, "  shared memory %d bytes\n", smem);
    plan_explain_reason(f, plan);
    explain_narrow(f, plan);
    if (!a->rows[0] || (backward && !back->forward))
        return;
    facts_string(f, "rows", a->rows);
    facts_line(f, "  rows          %s\n", a->rows);
}

void attention_explain(struct facts *f, const struct plan *plan)
{
    if (plan->row->form == PLAN_COMBINE)
        plan_explain_reason(f, plan);
    else
        explain_tiles(f, plan);
}

static int64_t parts_of_row(const struct plan *plan, const struct problem *p)
{
    const struct attention_plan *a = &plan->attention;
    return a->own_keys > 0 ? lathe__own_key_parts(p, a->own_keys)
           : a->parts_even ? lathe__even_key_parts(p, a->bm, a->part_blocks)
                           : lathe__key_parts(p, a->bm, a->part_blocks);
}

/* Query tiles, or blocks of keys in the backward pass, of all heads. */
static int64_t count_parts(const struct plan *plan, const struct problem *p)
{
    const bool backward = plan->row->form == PLAN_ATTENTION_BACK;
    const int rows = plan->attention.bm;
    if (plan->attention.back.walks_keys)
        return p->dim[SYM_B] * p->dim[SYM_H] *
               ((p->dim[SYM_Q] + plan->attention.back.bm - 1) / plan->attention.back.bm);
    if (!backward && plan->attention.parts)
        return p->dim[SYM_B] * p->dim[SYM_H_KV] * lathe__row_tiles(p, rows) * parts_of_row(plan, p);
    const int packed = !backward && plan->attention.pack ? lathe__heads_packed(p, plan->attention.bm) : 1;
    const int64_t heads = p->dim[SYM_B] * p->dim[backward ? SYM_H_KV : SYM_H] / packed;
    const int64_t step = backward ? (int64_t)plan->attention.back.bn * (plan->attention.back.paired ? 2 : 1)
                         : packed > 1 ? (int64_t)(64 / packed) * (plan->attention.bm / 64)
                                      : plan->attention.bm;
    const int64_t tiles = (p->dim[backward ? SYM_KV : SYM_Q] + step - 1) / step;
    return heads * tiles * (backward && plan->attention.back.paired ? 2 : 1);
}

int64_t attention_parts(const struct plan *plan, const struct problem *p, const char **what)
{
    if (plan->row->form == PLAN_COMBINE)
        return 0;
    const bool by_keys = plan->row->form == PLAN_ATTENTION_BACK && !plan->attention.back.walks_keys;
    *what = by_keys ? "blocks of keys" : plan->attention.parts ? "parts of query tiles" : "query tiles";
    return count_parts(plan, p);
}
