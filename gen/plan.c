/*
 * plan.c: which template serves a problem on a device, with which tile sizes, and why. In: numbers
 * only, so planning runs without a GPU. Out: a struct plan, or the reason of every template that refused.
 * The table of templates is the only dispatch; tile tables come from measurements (tests/bench).
 */
#include "gen.h"
#include "lower.h"
#include "plan.h"

#include <stdlib.h>
#include <string.h>

struct template_row {
    const char *name;
    const char *file;
    enum kind kind;
    lathe_pass pass;
    const char *unproven; /* new to hardware: why it is taken only by its name; NULL: it is taken */
    /* Fill the plan, or say why not in `why`. */
    bool (*ok)(const struct request *r, struct plan *plan, char *why);
};

/* ---- attention ------------------------------------------------------------------------------- */

/* First fit by dims, compute capability and shared memory. */
static const struct tile_row TILES[] = {
    {64, 64, 128, 64, 2, 4, true, 80, 999},    {64, 64, 64, 64, 2, 4, false, 80, 999},
    {96, 96, 128, 64, 2, 4, false, 80, 999},   {128, 128, 128, 64, 1, 4, false, 80, 999},
    {128, 128, 64, 64, 1, 4, false, 80, 999},  {192, 128, 128, 64, 1, 8, false, 80, 999},
    {192, 192, 128, 64, 1, 8, false, 80, 999}, {192, 256, 128, 32, 1, 8, false, 80, 999},
    {256, 256, 128, 64, 1, 8, false, 80, 999}, {256, 256, 64, 32, 1, 4, false, 80, 999},
    {256, 256, 64, 16, 1, 4, false, 80, 999},
};

/* Before those, where the mask may leave rows little: less of a tile is dead, and of four blocks an SM, which
   an H200 has room for, more are in the middle of their rows. Elsewhere twice the reads of K and V cost a
   tenth. */
static const struct tile_row SHORT_TILES[] = {
    {64, 64, 64, 64, 2, 2, true, 90, 999},
    {128, 128, 64, 64, 1, 2, false, 90, 999},
};

/* attention_smem_bytes of attention_fwd_sm80.cuh. */
static int attention_smem(const struct tile_row *t, int d_pad, int dv_pad, bool o_f32, bool diag)
{
    int q = t->bm * d_pad * 2;
    int ring = t->stages * t->bn * (d_pad + dv_pad) * 2;
    int o = o_f32 ? 0 : t->bm * dv_pad * 2;
    int body = t->q_in_regs ? (q > ring ? q : ring) : q + ring;
    return (body > o ? body : o) + (diag ? 8 * (t->bm + t->bn) : 0);
}

/* NULL: rows of several query heads may be mixed in a tile; else why not. */
static const char *why_not_packed(const struct ir *w, bool diag)
{
    const struct ir_fn *const fn[] = {&w->mask, &w->online, &w->epilogue};
    if (diag)
        return "a value per distance is shared along diagonals";
    if (bounds_mask_reads_data(w))
        return "the mask reads data";
    for (size_t f = 0; f < sizeof fn / sizeof *fn; f++)
        for (int i = 0; i < fn[f]->n_roots; i++)
            if (ir_depends_on(w, fn[f]->root[i], OP_AT, AT_H))
                return "the spec reads at.h";
    return NULL;
}

/* Does a read of the roots' values go by rows or columns, or by both? What is read for the value along
   diagonals, if there is one, stands in shared memory. */
static void find_reads(const struct ir *w, const struct ir_fn *fn, int diag, bool *by_one, bool *by_pair)
{
    bool *needed = calloc((size_t)w->n_nodes, sizeof *needed);
    if (needed)
        reach(w, fn->root, fn->n_roots, &diag, 1, needed);
    for (int i = 0; i < w->n_nodes; i++) {
        const bool q = (w->node[i].span & SPAN_Q) != 0;
        const bool kv = (w->node[i].span & SPAN_KV) != 0;
        if (w->node[i].op != OP_LOAD || i == diag || (needed && !needed[i]))
            continue;
        *by_pair |= q && kv;
        *by_one |= q != kv;
    }
    free(needed);
}

/* The keys that the mask leaves to a row end on one side, and all of those are left. */
static bool has_one_end(struct ir *w)
{
    live_range_pass(w);
    const bool first = w->node[w->live_range.root[0]].op != OP_CONST;
    const bool last = w->node[w->live_range.root[1]].op != OP_CONST;
    return w->live_rest.n_roots == 0 && !(first && last);
}

/* How many registers a thread needs besides scores, weights and o. */
static enum register_need need_of(struct ir *w, const struct request *r, int diag)
{
    const struct ir_fn *const fn[] = {&w->mask, &w->online, &w->epilogue};
    const bool own_rows = w->pivot.path == ROWS_EXACT && w->n_states > 0;
    bool by_one = diag >= 0 || r->ir->mod[MOD_OUTPUT].n_stages > 0 || own_rows;
    bool by_pair = own_rows && w->n_states > 1;
    for (size_t f = 0; f < sizeof fn / sizeof *fn; f++)
        find_reads(w, fn[f], diag, &by_one, &by_pair);
    if (by_pair)
        return NEED_MANY;
    if (by_one)
        return NEED_SOME;
    if (w->pivot.path != ROWS_LAZY)
        return NEED_NONE;
    if (w->mask.n_roots == 0)
        return NEED_LEAST;
    return has_one_end(w) ? NEED_FEW : NEED_SOME;
}

/* Whether the kernel keeps a value per diagonal; -1: the spec is too large, and why. Says how rows are
   carried. */
static int uses_diagonals(const struct request *r, struct plan *plan, char *why)
{
    struct signature sig;
    struct schedule s;
    signature_make(r->ir, r->pass, &sig);
    struct ir *w = lower(r->ir, &sig, r->problem);
    if (!w) {
        snprintf(why, REASON_BYTES, LOWER_FAILED, IR_MAX_NODES);
        return -1;
    }
    pivot_pass(w, r->problem->dtype);
    ramps_pass(w);
    pivot_say(w, plan->optimistic, plan->rows, sizeof plan->rows);
    int result = schedule_online(w, &s) ? s.diag >= 0 : -1;
    if (result < 0)
        snprintf(why, REASON_BYTES, "online_fwd has more than %d row reductions", MAX_REDUCTIONS);
    if (w->failed) {
        snprintf(why, REASON_BYTES, LOWER_FAILED, IR_MAX_NODES);
        result = -1;
    }
    plan->why_apart = why_not_packed(w, result > 0);
    plan->need = (int)need_of(w, r, result > 0 ? s.diag : -1);
    plan->short_rows = w->mask.n_roots > 0 && !has_one_end(w);
    ir_free(w);
    return result;
}

static bool half_mod_fits(const struct request *r, char *why)
{
    static const char *const name[MOD_COUNT] = {"query_mod", "key_mod", "value_mod", "output_mod"};
    for (int m = 0; m < MOD_COUNT; m++)
        for (int s = 0; s < r->ir->mod[m].n_stages; s++) {
            int64_t dim = r->problem->dim[m < MOD_VALUE ? SYM_D : SYM_D_V];
            if (r->ir->mod[m].stage[s].form == STAGE_ELEMENT || dim % 2 == 0)
                continue;
            snprintf(why, REASON_BYTES, "%s works on pairs, which an odd head dim (%d) does not have",
                     name[m], (int)dim);
            return false;
        }
    return true;
}

static bool attention_dims_fit(const struct request *r, int most_dv, char *why)
{
    int64_t d = r->problem->dim[SYM_D];
    int64_t dv = r->problem->dim[SYM_D_V];
    if (r->problem->dtype != LATHE_F16 && r->problem->dtype != LATHE_BF16)
        snprintf(why, REASON_BYTES, "dtype %s; it takes f16 and bf16 (f32 and f64 run on the host device)",
                 lathe_dtype_text(r->problem->dtype));
    else if (d < 16 || d > 256 || d % 8 != 0)
        snprintf(why, REASON_BYTES, "d = %lld; it takes multiples of 8 from 16 to 256", (long long)d);
    else if (dv < 16 || dv > most_dv || dv % 8 != 0)
        snprintf(why, REASON_BYTES, "d_v = %lld; it takes multiples of 8 from 16 to %d", (long long)dv,
                 most_dv);
    else if (r->device->sm < 80)
        snprintf(why, REASON_BYTES, "compute capability %d.%d; it needs 8.0 (cp.async, bf16 mma)",
                 r->device->sm / 10, r->device->sm % 10);
    else
        return half_mod_fits(r, why);
    return false;
}

/* "128x64s2w4", with a q where Q stays in registers. */
static void name_tile(const struct tile_row *t, char *out, size_t size)
{
    snprintf(out, size, "%dx%ds%dw%d%s", t->bm, t->bn, t->stages, t->warps, t->q_in_regs ? "q" : "");
}

/* Of a row that serves: is it the one to take? */
bool plan_tile_is_wanted(const struct request *r, const struct tile_row *t)
{
    char name[sizeof r->device->tile];
    name_tile(t, name, sizeof name);
    if (r->device->tile[0] && strcmp(r->device->tile, name) != 0)
        return false;
    if (!r->skip || *r->skip == 0)
        return true;
    (*r->skip)--;
    return false;
}

void plan_take_tile(struct plan *plan, const struct tile_row *t, int smem, bool diag)
{
    plan->bm = t->bm;
    plan->bn = t->bn;
    plan->stages = t->stages;
    plan->warps = t->warps;
    plan->q_in_regs = t->q_in_regs;
    plan->smem_bytes = smem;
    name_tile(t, plan->tile, sizeof plan->tile);
    snprintf(plan->reason, sizeof plan->reason,
             "head dims padded to %d and %d: tiles of %d queries x %d keys, %d warps, %d stage%s, %d bytes "
             "of shared memory%s",
             plan->d_pad, plan->dv_pad, t->bm, t->bn, t->warps, t->stages, t->stages == 1 ? "" : "s", smem,
             diag ? "; a value per distance is shared along diagonals" : "");
}

bool plan_tma_takes(const struct request *r, char *why)
{
    static const char *const name[] = {"q", "k", "v", "o", "do"};
    struct signature sig;
    signature_make(r->ir, r->pass, &sig);
    for (size_t t = 0; t < sizeof name / sizeof *name; t++) {
        const int arg = signature_find(&sig, name[t]);
        const bool moved = t < MOD_COUNT && r->ir->mod[t].n_stages > 0; /* tensors are in the order of mods */
        if (arg < 0 || moved || !arg_in(r->problem->folded & ~r->problem->unaligned, arg))
            continue;
        snprintf(
            why, REASON_BYTES,
            "%s is folded: a dim of several elements has a stride of 0, below it, or of 2^40 bytes and more, "
            "which TMA does not take",
            name[t]);
        return false;
    }
    return true;
}

bool plan_attention_begin(const struct request *r, int most_dv, struct plan *plan, int *diag, char *why)
{
    if (!attention_dims_fit(r, most_dv, why))
        return false;
    *diag = uses_diagonals(r, plan, why);
    if (*diag < 0)
        return false;
    plan->d_pad = round_up(r->problem->dim[SYM_D], 16);
    plan->dv_pad = round_up(r->problem->dim[SYM_D_V], r->problem->dim[SYM_D_V] > MAX_DIM ? 128 : 16);
    plan->o_f32 = r->ir->mod[MOD_OUTPUT].n_stages > 0;
    return true;
}

bool plan_attention_sm80(const struct request *r, struct plan *plan, char *why)
{
    int diag = 0;
    if (!plan_attention_begin(r, MAX_DIM, plan, &diag, why))
        return false;
    const size_t n_short = sizeof SHORT_TILES / sizeof *SHORT_TILES;
    const bool wide = !plan->short_rows && !r->device->tile[0];
    for (size_t i = wide ? n_short : 0; i < n_short + sizeof TILES / sizeof *TILES; i++) {
        const struct tile_row *t = i < n_short ? &SHORT_TILES[i] : &TILES[i - n_short];
        int smem = attention_smem(t, plan->d_pad, plan->dv_pad, plan->o_f32, diag > 0);
        if (plan->d_pad > t->max_d || plan->dv_pad > t->max_dv || smem > r->device->smem_bytes ||
            r->device->sm < t->min_sm || r->device->sm > t->max_sm || !plan_tile_is_wanted(r, t))
            continue;
        plan_take_tile(plan, t, smem, diag > 0);
        return true;
    }
    snprintf(why, REASON_BYTES, "no tile of head dims %d, %d fits %d bytes of shared memory", plan->d_pad,
             plan->dv_pad, r->device->smem_bytes);
    return false;
}

/* ---- the table ------------------------------------------------------------------------------- */

static const struct template_row TEMPLATES[] = {
    {"attention_fwd_sm90", "attention_fwd_sm90.cuh", KIND_ATTENTION, LATHE_FORWARD, NULL,
     plan_attention_sm90},
    {"attention_fwd_sm80", "attention_fwd_sm80.cuh", KIND_ATTENTION, LATHE_FORWARD, NULL,
     plan_attention_sm80},
    {"attention_bwd_sm90", "attention_bwd_sm90.cuh", KIND_ATTENTION, LATHE_BACKWARD, NULL,
     plan_attention_bwd_sm90},
    {"attention_bwd_wide_sm90", "attention_bwd_wide_sm90.cuh", KIND_ATTENTION, LATHE_BACKWARD, NULL,
     plan_attention_bwd_wide},
    {"attention_bwd_sm80", "attention_bwd_sm80.cuh", KIND_ATTENTION, LATHE_BACKWARD, NULL,
     plan_attention_bwd},
    {"rowwise_walk", "rowwise_walk.cuh", KIND_ROWWISE, LATHE_FORWARD, NULL, plan_walk},
    {"rowwise_walk_bwd", "rowwise_walk.cuh", KIND_ROWWISE, LATHE_BACKWARD, NULL, plan_walk},
    {"rowwise_inner", "rowwise_inner.cuh", KIND_ROWWISE, LATHE_FORWARD, NULL, plan_inner},
    {"rowwise_inner_bwd", "rowwise_inner.cuh", KIND_ROWWISE, LATHE_BACKWARD, NULL, plan_inner},
    {"rowwise_staged", "rowwise_staged.cuh", KIND_ROWWISE, LATHE_FORWARD, NULL, plan_staged},
    {"rowwise_staged_bwd", "rowwise_staged.cuh", KIND_ROWWISE, LATHE_BACKWARD, NULL, plan_staged},
    {"rowwise", "rowwise.cuh", KIND_ROWWISE, LATHE_FORWARD, NULL, plan_rowwise},
    {"rowwise_many", "rowwise_many.cuh", KIND_ROWWISE, LATHE_FORWARD, NULL, plan_rowwise_many},
    {"rowwise_bwd", "rowwise_many.cuh", KIND_ROWWISE, LATHE_BACKWARD, NULL, plan_rowwise_many},
    {"elementwise", "elementwise.cuh", KIND_ELEMENTWISE, LATHE_FORWARD, NULL, plan_elementwise},
    {"elementwise_gather", "elementwise_gather.cuh", KIND_ELEMENTWISE, LATHE_BACKWARD, NULL,
     plan_elementwise_gather},
    {"elementwise_bwd", "elementwise.cuh", KIND_ELEMENTWISE, LATHE_BACKWARD, NULL, plan_elementwise_bwd},
};

static void refuse(lathe_error *err, const char *name, const char *why)
{
    size_t used = strlen(err->text);
    if (used + 1 < sizeof err->text)
        snprintf(err->text + used, sizeof err->text - used, "%s%s: %s", used ? "\n" : "", name, why);
}

static bool is_named(const char *list, const char *name)
{
    const size_t size = strlen(name);
    for (const char *at = list; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, size) == 0 && (at[size] == ',' || at[size] == '\0'))
            return true;
    }
    return false;
}

bool plan_knows(const char *list, struct text_buf *known)
{
    int names = 1;
    int found = 0;
    for (const char *at = list; *at; at++)
        names += *at == ',';
    for (size_t i = 0; i < sizeof TEMPLATES / sizeof *TEMPLATES; i++)
        found += is_named(list, TEMPLATES[i].name);
    for (size_t i = 0; i < sizeof TEMPLATES / sizeof *TEMPLATES && found < names; i++)
        text_add(known, " %s", TEMPLATES[i].name);
    return found >= names;
}

/* The templates that somebody asked for, where that concerns this kind and pass; else "". A name that no
   template has concerns everything: a misspelt wish is refused. */
static const char *wish_of(const struct request *r, lathe_pass pass)
{
    const char *list = r->device->template_name;
    bool concerns = r->device->template_only;
    int known = 0;
    int names = list[0] != '\0';
    for (const char *at = list; *at; at++)
        names += *at == ',';
    for (size_t i = 0; i < sizeof TEMPLATES / sizeof *TEMPLATES; i++) {
        const bool named = is_named(list, TEMPLATES[i].name);
        concerns |= named && TEMPLATES[i].kind == r->ir->kind && TEMPLATES[i].pass == pass;
        known += named;
    }
    return concerns || known < names ? list : "";
}

/* Does the template serve? Else says why not in `why`. */
static bool row_ok(const struct template_row *t, lathe_pass pass, const struct request *r, struct plan *out,
                   char *why)
{
    const char *wish = wish_of(r, pass);
    const int skip = r->skip ? *r->skip : 0;
    *out = (struct plan){.template_name = t->name, .file = t->file, .bound_waits = t->unproven != NULL};
    if (r->only && strcmp(r->only, t->name) != 0)
        snprintf(why, REASON_BYTES, "%s was measured", r->only);
    else if (wish[0] && !is_named(wish, t->name))
        snprintf(why, REASON_BYTES, "%s was asked for", wish);
    else if (t->pass != pass)
        snprintf(why, REASON_BYTES, "%s",
                 t->pass == LATHE_FORWARD ? "computes the forward pass only"
                                          : "computes the backward pass only");
    else if (!t->ok(r, out, why))
        return false;
    else if (t->unproven && !wish[0])
        snprintf(why, REASON_BYTES, "%s", t->unproven);
    else
        return true;
    if (r->skip && t->unproven && !wish[0])
        *r->skip = skip; /* its rows do not count */
    return false;
}

/* Is there a template for the pass? Then those of the other one are no refusals worth listing. */
static bool has_pass(enum kind kind, lathe_pass pass)
{
    bool found = false;
    for (size_t i = 0; i < sizeof TEMPLATES / sizeof *TEMPLATES; i++)
        found |= TEMPLATES[i].kind == kind && TEMPLATES[i].pass == pass;
    return found;
}

static lathe_status
pick(const struct ir *ir, lathe_pass pass, const struct problem *problem,
     // NOLINTNEXTLINE(readability-non-const-parameter): counted down through struct request
     const struct device *device, int *skip, const char *only, struct plan *out, lathe_error *reasons)
{
    const struct request request = {ir, pass, problem, device, skip, only};
    *reasons = (lathe_error){.status = LATHE_UNSUPPORTED};
    for (size_t i = 0; i < sizeof TEMPLATES / sizeof *TEMPLATES; i++) {
        char why[REASON_BYTES] = "";
        const bool other = TEMPLATES[i].pass != pass && has_pass(ir->kind, pass);
        if (TEMPLATES[i].kind != ir->kind || other)
            continue;
        if (row_ok(&TEMPLATES[i], pass, &request, out, why))
            return LATHE_OK;
        refuse(reasons, TEMPLATES[i].name, why[0] ? why : "out of memory"); /* all other reasons have words */
        if (!why[0])
            return LATHE_UNSUPPORTED; /* not another template, by chance */
    }
    return LATHE_UNSUPPORTED;
}

lathe_status plan_pick(const struct ir *ir, lathe_pass pass, const struct problem *problem,
                       const struct device *device, struct plan *out, lathe_error *err)
{
    lathe_error reasons;
    lathe_status status = pick(ir, pass, problem, device, NULL, NULL, out, &reasons);
    if (status != LATHE_OK && err)
        *err = reasons;
    return status;
}

bool plan_candidate(const struct ir *ir, lathe_pass pass, const struct problem *problem,
                    const struct device *device, int number, struct plan *out)
{
    lathe_error reasons;
    int skip = number;
    return pick(ir, pass, problem, device, &skip, NULL, out, &reasons) == LATHE_OK && skip == 0;
}

bool plan_measured(const struct ir *ir, lathe_pass pass, const struct problem *problem,
                   const struct device *device, const char *template_name, const char *tile, struct plan *out)
{
    lathe_error reasons;
    struct device wish = *device;
    snprintf(wish.tile, sizeof wish.tile, "%s", tile);
    return pick(ir, pass, problem, &wish, NULL, template_name, out, &reasons) == LATHE_OK;
}

void plan_names(const struct ir *ir, lathe_pass pass, const struct device *device, struct text_buf *out)
{
    for (size_t i = 0; i < sizeof TEMPLATES / sizeof *TEMPLATES; i++)
        if (TEMPLATES[i].kind == ir->kind && TEMPLATES[i].pass == pass &&
            is_named(device->template_name, TEMPLATES[i].name))
            text_add(out, "%s ", TEMPLATES[i].name);
}

void plan_refusals(const struct ir *ir, lathe_pass pass, const struct problem *problem,
                   const struct device *device, lathe_error *out)
{
    struct plan plan;
    (void)pick(ir, pass, problem, device, NULL, NULL, &plan, out);
}
