/*
 * plan.c: which template serves a problem on a device, with which tile sizes, and why. In: numbers
 * only, so planning runs without a GPU. Out: a struct plan, or the reason of every template that refused.
 * The table of templates is the only dispatch; tile tables come from measurements (tests/bench).
 */
#include "gen.h"
#include "lower.h"
#include "plan.h"

#include <string.h>

struct template_row {
    const char *name;
    const char *file;
    enum kind kind;
    lathe_pass pass;
    const char *unproven; /* why it is taken only by its name; NULL: it is taken */
    /* Fill the plan, or say why not in `why`. */
    bool (*ok)(const struct request *r, struct plan *plan, char *why);
};

/* ---- attention ------------------------------------------------------------------------------- */

struct tile_row {
    int max_d, max_dv; /* padded dims that it serves */
    int bm, bn, stages, warps;
    bool q_in_regs;
    int min_sm, max_sm;
};

/* First fit by dims, compute capability and shared memory. */
static const struct tile_row TILES[] = {
    {64, 64, 128, 64, 2, 4, true, 80, 999},    {64, 64, 64, 64, 2, 4, false, 80, 999},
    {96, 96, 128, 64, 2, 4, false, 80, 999},   {128, 128, 128, 64, 1, 4, false, 80, 999},
    {128, 128, 64, 64, 1, 4, false, 80, 999},  {192, 128, 128, 64, 1, 8, false, 80, 999},
    {192, 192, 128, 64, 1, 8, false, 80, 999}, {192, 256, 128, 32, 1, 8, false, 80, 999},
    {256, 256, 128, 64, 1, 8, false, 80, 999}, {256, 256, 64, 32, 1, 4, false, 80, 999},
    {256, 256, 64, 16, 1, 4, false, 80, 999},
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

/* Whether the kernel keeps a value per diagonal; -1: the spec is too large. Says how rows are carried. */
static int uses_diagonals(const struct request *r, struct plan *plan)
{
    struct signature sig;
    struct schedule s;
    signature_make(r->ir, r->pass, &sig);
    struct ir *w = lower(r->ir, &sig, r->problem);
    if (!w)
        return -1;
    pivot_pass(w, r->problem->dtype);
    pivot_say(w, plan->optimistic, plan->rows, sizeof plan->rows);
    int result = schedule_online(w, &s) ? s.diag >= 0 : -1;
    plan->why_apart = why_not_packed(w, result > 0);
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

static bool attention_dims_fit(const struct request *r, char *why)
{
    int64_t d = r->problem->dim[SYM_D];
    int64_t dv = r->problem->dim[SYM_D_V];
    if (r->problem->dtype != LATHE_F16 && r->problem->dtype != LATHE_BF16)
        snprintf(why, REASON_BYTES, "dtype %s; it takes f16 and bf16 (f32 and f64 run on the host device)",
                 lathe_dtype_text(r->problem->dtype));
    else if (d < 16 || d > 256 || d % 8 != 0)
        snprintf(why, REASON_BYTES, "d = %lld; it takes multiples of 8 from 16 to 256", (long long)d);
    else if (dv < 16 || dv > 256 || dv % 8 != 0)
        snprintf(why, REASON_BYTES, "d_v = %lld; it takes multiples of 8 from 16 to 256", (long long)dv);
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
static bool is_wanted(const struct request *r, const struct tile_row *t)
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

static void take_tile(struct plan *plan, const struct tile_row *t, int smem, bool diag)
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

/* What every attention template asks and fills in. *diag: the kernel keeps a value per diagonal. */
static bool attention_begin(const struct request *r, struct plan *plan, int *diag, char *why)
{
    if (!attention_dims_fit(r, why))
        return false;
    *diag = uses_diagonals(r, plan);
    if (*diag < 0) {
        snprintf(why, REASON_BYTES, "online_fwd has more than %d row reductions", MAX_REDUCTIONS);
        return false;
    }
    plan->d_pad = round_up(r->problem->dim[SYM_D], 16);
    plan->dv_pad = round_up(r->problem->dim[SYM_D_V], 16);
    plan->o_f32 = r->ir->mod[MOD_OUTPUT].n_stages > 0;
    return true;
}

bool plan_attention_sm80(const struct request *r, struct plan *plan, char *why)
{
    int diag = 0;
    if (!attention_begin(r, plan, &diag, why))
        return false;
    for (size_t i = 0; i < sizeof TILES / sizeof *TILES; i++) {
        const struct tile_row *t = &TILES[i];
        int smem = attention_smem(t, plan->d_pad, plan->dv_pad, plan->o_f32, diag > 0);
        if (plan->d_pad > t->max_d || plan->dv_pad > t->max_dv || smem > r->device->smem_bytes ||
            r->device->sm < t->min_sm || r->device->sm > t->max_sm || !is_wanted(r, t))
            continue;
        take_tile(plan, t, smem, diag > 0);
        return true;
    }
    snprintf(why, REASON_BYTES, "no tile of head dims %d, %d fits %d bytes of shared memory", plan->d_pad,
             plan->dv_pad, r->device->smem_bytes);
    return false;
}

/* ---- attention on Hopper ------------------------------------------------------------------------ */

/* Warps that compute; stages of K and V each. First fit by dims and shared memory. Registers of a thread: BN
   / 2 scores, BN / 4 weights and DV_PAD / 2 of o, of 240 (8 warps), 160 (12) or 112 (16). */
static const struct tile_row HOPPER_TILES[] = {
    {32, 32, 256, 64, 4, 16, false, 90, 90},  {64, 64, 192, 96, 3, 12, false, 90, 90},
    {96, 96, 128, 128, 2, 8, false, 90, 90},  {128, 128, 128, 128, 2, 8, false, 90, 90},
    {192, 128, 128, 96, 2, 8, false, 90, 90}, {192, 192, 128, 96, 2, 8, false, 90, 90},
    {128, 256, 128, 64, 2, 8, false, 90, 90}, {256, 256, 128, 64, 2, 8, false, 90, 90},
};

/* hopper_smem_bytes of attention_layout_sm90.cuh. */
static int hopper_smem(const struct tile_row *t, const struct plan *plan, bool diag)
{
    const int groups = t->warps / 4;
    const int q = 64 * plan->d_pad * 2;
    const int o = plan->o_f32 ? 0 : 64 * plan->dv_pad * 2;
    const int tiles = groups * (plan->q_stages * q + (plan->own_o ? o : 0));
    const int k = round_up((int64_t)t->stages * t->bn * plan->d_pad * 2, 1024);
    const int v = round_up((int64_t)t->stages * t->bn * plan->dv_pad * 2, 1024);
    return tiles + k + v + 32 * t->stages + 16 * plan->q_stages * groups + 64 +
           (diag ? groups * 8 * (64 + t->bn) : 0);
}

static void say_hopper(struct plan *plan)
{
    const size_t used = strlen(plan->reason);
    snprintf(plan->reason + used, sizeof plan->reason - used,
             "; a warpgroup loads, %d compute with room for %d tile%s of Q each; o leaves %s; query tiles "
             "are taken "
             "%s; %s%s",
             plan->warps / 4, plan->q_stages, plan->q_stages == 1 ? "" : "s",
             plan->o_f32   ? "as fp32"
             : plan->own_o ? "by TMA"
                           : "straight from registers, for want of shared memory",
             plan->dynamic ? "from a counter, for their lengths differ" : "in turn",
             plan->why_apart ? "a tile has rows of one query head, for "
                             : "where queries are short, the query heads of a key head share a tile",
             plan->why_apart ? plan->why_apart : "");
}

/* With as much room for Q and o as there is: for two tiles of Q, for one, for no o. */
static bool hopper_tile_fits(const struct request *r, const struct tile_row *t, bool diag, struct plan *plan)
{
    if (plan->d_pad > t->max_d || plan->dv_pad > t->max_dv)
        return false;
    for (int room = 2; room >= 0; room--) {
        plan->q_stages = room > 1 ? 2 : 1;
        plan->own_o = room > 0;
        const int smem = hopper_smem(t, plan, diag);
        if (smem > r->device->smem_bytes)
            continue;
        if (!is_wanted(r, t))
            return false;
        take_tile(plan, t, smem, diag);
        say_hopper(plan);
        return true;
    }
    return false;
}

static bool attention_sm90_ok(const struct request *r, struct plan *plan, char *why)
{
    if (r->device->sm != 90) {
        snprintf(why, REASON_BYTES, "compute capability %d.%d; it needs 9.0 (wgmma, TMA)", r->device->sm / 10,
                 r->device->sm % 10);
        return false;
    }
    int diag = 0;
    plan->optimistic =
        r->problem->dim[SYM_D_V] <= 128; /* more columns of o leave no registers for another step */
    if (!attention_begin(r, plan, &diag, why))
        return false;
    plan->tma = true;
    plan->pack = !plan->why_apart;
    plan->blocks = r->device->sm_count;
    plan->dynamic = r->ir->mask.n_roots > 0; /* rows of one length need no balance */
    for (size_t i = 0; i < sizeof HOPPER_TILES / sizeof *HOPPER_TILES; i++)
        if (hopper_tile_fits(r, &HOPPER_TILES[i], diag > 0, plan))
            return true;
    snprintf(why, REASON_BYTES, "no tile of head dims %d, %d fits %d bytes of shared memory", plan->d_pad,
             plan->dv_pad, r->device->smem_bytes);
    return false;
}

/* ---- the table ------------------------------------------------------------------------------- */

#define NOT_RUN(name)                                                                                        \
    "fits, but has been run on the emulator only and on no GPU yet; --template " name " picks it"
static const struct template_row TEMPLATES[] = {
    {"attention_fwd_sm90", "attention_fwd_sm90.cuh", KIND_ATTENTION, LATHE_FORWARD,
     NOT_RUN("attention_fwd_sm90"), attention_sm90_ok},
    {"attention_fwd_sm80", "attention_fwd_sm80.cuh", KIND_ATTENTION, LATHE_FORWARD, NULL,
     plan_attention_sm80},
    {"attention_bwd_sm90", "attention_bwd_sm90.cuh", KIND_ATTENTION, LATHE_BACKWARD,
     NOT_RUN("attention_bwd_sm90"), plan_attention_bwd_sm90},
    {"attention_bwd_wide_sm90", "attention_bwd_wide_sm90.cuh", KIND_ATTENTION, LATHE_BACKWARD,
     NOT_RUN("attention_bwd_wide_sm90"), plan_attention_bwd_wide},
    {"attention_bwd_sm80", "attention_bwd_sm80.cuh", KIND_ATTENTION, LATHE_BACKWARD, NULL,
     plan_attention_bwd},
    {"rowwise", "rowwise.cuh", KIND_ROWWISE, LATHE_FORWARD, NULL, plan_rowwise},
    {"rowwise_many", "rowwise_many.cuh", KIND_ROWWISE, LATHE_FORWARD, NULL, plan_rowwise_many},
    {"rowwise_bwd", "rowwise_many.cuh", KIND_ROWWISE, LATHE_BACKWARD, NULL, plan_rowwise_bwd},
    {"elementwise", "elementwise.cuh", KIND_ELEMENTWISE, LATHE_FORWARD, NULL, plan_elementwise},
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
    if (wish[0] && !is_named(wish, t->name))
        snprintf(why, REASON_BYTES, "%s was asked for", wish);
    else if (t->pass != pass)
        snprintf(why, REASON_BYTES, "%s",
                 t->pass == LATHE_FORWARD ? "computes the forward pass only; gradients run on the host device"
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

static lathe_status pick(const struct ir *ir, lathe_pass pass, const struct problem *problem,
                         const struct device *device, int *skip, struct plan *out, lathe_error *reasons)
{
    const struct request request = {ir, pass, problem, device, skip};
    *reasons = (lathe_error){.status = LATHE_UNSUPPORTED};
    for (size_t i = 0; i < sizeof TEMPLATES / sizeof *TEMPLATES; i++) {
        char why[REASON_BYTES] = "";
        const bool other = TEMPLATES[i].pass != pass && has_pass(ir->kind, pass);
        if (TEMPLATES[i].kind != ir->kind || other)
            continue;
        if (row_ok(&TEMPLATES[i], pass, &request, out, why))
            return LATHE_OK;
        refuse(reasons, TEMPLATES[i].name, why);
    }
    return LATHE_UNSUPPORTED;
}

lathe_status plan_pick(const struct ir *ir, lathe_pass pass, const struct problem *problem,
                       const struct device *device, struct plan *out, lathe_error *err)
{
    lathe_error reasons;
    lathe_status status = pick(ir, pass, problem, device, NULL, out, &reasons);
    if (status != LATHE_OK && err)
        *err = reasons;
    return status;
}

bool plan_candidate(const struct ir *ir, lathe_pass pass, const struct problem *problem,
                    const struct device *device, int number, struct plan *out)
{
    lathe_error reasons;
    int skip = number;
    return pick(ir, pass, problem, device, &skip, out, &reasons) == LATHE_OK && skip == 0;
}

void plan_refusals(const struct ir *ir, lathe_pass pass, const struct problem *problem,
                   const struct device *device, lathe_error *out)
{
    struct plan plan;
    (void)pick(ir, pass, problem, device, NULL, &plan, out);
}
