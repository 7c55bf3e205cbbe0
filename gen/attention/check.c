/*
 * check.c: rules of attention for a whole spec: one value a pair from score_mod and mask_mod, one a row from
 * the epilogue. In: traced IR. Out: the same, with bounds of the mask, or diagnostics.
 */
#include "gen/attention/columns.h"
#include "gen/attention/mask_tiles.h"
#include "gen/base/diag.h"
#include "gen/ir/kind.h"
#include "gen/ir/rules.h"

#define ROW_ONLY "must be one value per row; reduce along the row first (rowmax, rowmin, rowsum)"

static void check_mask(struct rule *r)
{
    struct ir *ir = r->ir;
    if (ir->mask.n_roots == 0)
        return;
    if (ir->node[ir->mask.root[0]].type != TYPE_BOOL)
        rule_broken(r, &ir->mask, 0, "must return a bool such as ge(at.q, at.kv); it returns a number",
                    "mask_mod");
    rule_no_reductions(r, &ir->mask, 0, SPAN_KV, "mask_mod",
                       "a mask looks at one pair at a time; row reductions belong in online_fwd");
}

static void check_score(struct rule *r)
{
    struct ir *ir = r->ir;
    rule_number(r, &ir->scale, 0, 0, "scale",
                "must be one value per head; it may use inputs indexed by at.b and at.h");
    if (ir->score.n_roots == 0)
        return;
    rule_number(r, &ir->score, 0, SPAN_Q | SPAN_KV, "score_mod", "must be one value per pair");
    rule_no_reductions(r, &ir->score, 0, SPAN_KV, "score_mod",
                       "looks at one pair at a time; row reductions belong in online_fwd of an online_func");
}

static void check_online(struct rule *r)
{
    struct ir *ir = r->ir;
    if (ir->online.n_roots == 0 || ir->epilogue.n_roots == 0 || ir->forward.n_roots == 0)
        return; /* its own mistake was reported */
    rule_number(r, &ir->online, 0, SPAN_Q | SPAN_KV, "online_fwd (weights)", "must be one value per pair");
    rule_number(r, &ir->online, 1, SPAN_Q, "online_fwd (factor for o)", ROW_ONLY);
    for (int i = 0; i < ir->n_states; i++)
        rule_number(r, &ir->online, 2 + i, SPAN_Q, "online_fwd (row state)", ROW_ONLY);
    for (int i = 0; i < ir->epilogue.n_roots; i++)
        rule_number(r, &ir->epilogue, i, SPAN_Q, "online_fwd_epilogue", ROW_ONLY);
    rule_number(r, &ir->forward, 0, SPAN_Q | SPAN_KV, "forward", "must be one value per pair");
    rule_no_reductions(
        r, &ir->forward, 0, SPAN_KV, "forward",
        "must follow from the score and final_rowscales alone; save what it needs in online_fwd_epilogue");
    if (ir->backward.n_roots > 0) {
        rule_number(r, &ir->backward, 0, SPAN_Q | SPAN_KV, "backward", "must be one value per pair");
        rule_no_reductions(r, &ir->backward, 0, SPAN_KV, "backward",
                           "must follow from its arguments; sums over the row are in delta");
    }
    if (ir->combine.n_roots == 0)
        return;
    rule_number(r, &ir->combine, 0, SPAN_Q | SPAN_SPLIT, "combine", "must be one value per part");
    for (int i = 0; i < ir->n_states; i++)
        rule_number(r, &ir->combine, 1 + i, SPAN_Q, "combine",
                    "a merged row state must not vary with the part; reduce with splitmax or splitsum");
}

bool check_attention(struct ir *ir, struct diag *diag)
{
    struct rule r = {ir, diag, true};
    rule_mods(&r);
    check_score(&r);
    check_mask(&r);
    check_online(&r);
    rule_names(&r);
    if (r.ok)
        bounds_build(ir);
    return r.ok;
}
