/*
 * emit.c: from a spec, a problem and a plan to texts and a launch recipe. In: immutable IR. Out: a
 * struct source: text 0 is a list of includes, then the two generated headers, then every template they
 * need, in the order of inclusion. The same input gives the same bytes.
 */
#include "emit_attention.h"
#include "row_pass.h"

#include "kinds.h"

#include <stdlib.h>
#include <string.h>

/* ---- config.gen.cuh -------------------------------------------------------------------------- */

static const char *element_name(lathe_dtype dtype)
{
    return dtype == LATHE_F16 ? "f16" : dtype == LATHE_BF16 ? "bf16" : "float";
}

/* The forward kernel of Hopper has products of two widths: scores, and the columns of o of a warpgroup. */
static void emit_product_widths(struct text_buf *t, const struct plan *plan)
{
    enum { WIDEST = 256 };
    const int columns = plan->dv_pad > WIDEST ? plan->dv_pad / 2 : plan->dv_pad;
    text_add(t, "#define WGMMA_WIDTHS WGMMA_%d", columns);
    if (plan->bn != columns)
        text_add(t, " WGMMA_%d", plan->bn);
    text_add(t, "\n");
}

static void emit_attention_config(struct text_buf *t, const struct problem *problem, const struct plan *plan)
{
    text_add(t, "constexpr int D = %d, D_V = %d;\n", (int)problem->dim[SYM_D], (int)problem->dim[SYM_D_V]);
    text_add(t, "constexpr int D_PAD = %d, DV_PAD = %d;\n", plan->d_pad, plan->dv_pad);
    text_add(t, "constexpr int BM = %d, BN = %d, WARPS = %d, STAGES = %d;\n", plan->bm, plan->bn, plan->warps,
             plan->stages);
    if (plan->tma)
        text_add(t,
                 "constexpr int Q_STAGES = %d;\nconstexpr bool OWN_O = %s, DYNAMIC = %s, PACK = %s;\n"
                 "constexpr bool BOUND_WAITS = %s;\n",
                 plan->q_stages, yes(plan->own_o), yes(plan->dynamic), yes(plan->pack),
                 yes(plan->bound_waits));
    else
        text_add(t, "constexpr bool Q_IN_REGS = %s, SHORT_ROWS = %s;\n", yes(plan->q_in_regs),
                 yes(plan->short_rows));
    text_add(t, "constexpr bool O_F32 = %s;\n", plan->o_f32 ? "true" : "false");
}

static void emit_rowwise_config(struct text_buf *t, const struct plan *plan)
{
    text_add(t, "constexpr int THREADS = %d, VECTOR = %d;\n", plan->threads, plan->vector);
    text_add(t,
             "constexpr int PER_THREAD = %d, ROWS_PER_BLOCK = %d;\nconstexpr bool ALIGNED = %s, FULL = %s, "
             "REREAD = %s, KEPT = %s;\n",
             plan->per_thread, plan->rows_per_block, yes(plan->aligned), yes(plan->full), yes(plan->reread),
             yes(plan->kept));
}

static void emit_many_config(struct text_buf *t, const struct plan *plan)
{
    text_add(t, "constexpr bool PREFETCH = %s, SHARED_NEXT = %s, INNER = %s;\n", yes(plan->prefetch),
             yes(plan->shared_next), yes(plan->inner));
    text_add(t, "constexpr int BLOCKS = %d, COLUMN_PARTS = %d, REGISTERS = %d, AT_ONCE = %d, CLUSTER = %d;\n",
             plan->blocks, plan->column_parts, plan->registers, plan->at_once,
             plan->cluster > 1 ? plan->cluster : 1);
    if (plan->units_wide > 0)
        text_add(t, "constexpr int UNITS_WIDE = %d;\nconstexpr bool MORE = %s, TAKEN = %s;\n",
                 plan->units_wide, yes(plan->more), yes(plan->taken));
    if (plan->places > 0)
        text_add(
            t,
            "constexpr int PLACES = %d, STAGES = %d, AGAIN_STAGES = %d, PART = %d, HELD_CARRIES = %d, "
            "WHOLE_WARPS = %d;\n"
            "constexpr bool CARRIES_BY_WARP = %s;\n"
            "constexpr int CHAIN_THREADS = %d, CHAIN_BATCHES = %d, CHAIN_GROUP = %d, CHAIN_STRIPS = %d;\n",
            plan->places, plan->stages, plan->again_stages, plan->part_places, plan->held_carries,
            plan->whole_warps, plan->carries_by_warp ? "true" : "false", plan->chain.threads,
            plan->chain.batches, CHAIN_GROUP, plan->chain.strips);
    else if (plan->stages > 0)
        text_add(t,
                 "constexpr int STAGES = %d, SURE = %d;\nconstexpr bool TAKEN = %s, COLS_HELD = %s, "
                 "COLS_PACKED = %s, MORE = %s, COLUMNS_SHARED = %s, LATE = %s, GIVEN_AHEAD = %s;\n",
                 plan->stages, plan->sure, yes(plan->taken), yes(plan->cols_held), yes(plan->cols_packed),
                 yes(plan->more), yes(plan->columns_shared), yes(plan->late), yes(plan->given_ahead));
}

static void emit_elementwise_config(struct text_buf *t, const struct plan *plan)
{
    text_add(t, "constexpr int THREADS = %d, VECTOR = %d, UNROLL = %d, STEPS = %d, TURNS = %d;\n",
             plan->threads, plan->vector, plan->unroll, plan->steps, plan->turns);
    text_add(t, "constexpr int MIN_BLOCKS = %d;\n", plan->min_blocks);
    text_add(t, "constexpr bool LONG_LOOPS = %s, AHEAD = %s;\nconstexpr unsigned BUSY_THREADS = %d;\n",
             yes(plan->long_loops), yes(plan->ahead), plan->blocks * plan->threads / 2);
}

static void emit_config(struct text_buf *t, const struct ir *ir, const struct signature *sig,
                        const struct problem *problem, const struct plan *plan)
{
    text_add(t,
             "// config.gen.cuh: written by lathe " LATHE_VERSION
             " from %s.lua for %s; do not edit\n#pragma once\n",
             ir->name, plan->template_name);
    text_add(t, "#include \"slots_base.cuh\"\n\n#define LATHE_ENTRY(role) %.24s_%s_##role\n", ir->name,
             lathe_dtype_text(problem->dtype));
    if (plan->tma)
        emit_product_widths(t, plan);
    if (plan->cluster > 1 || plan->back.paired)
        text_add(t, "#define LATHE_CLUSTER __cluster_dims__(%d, 1, 1)\n",
                 plan->back.paired ? 2 : plan->cluster);
    else if (plan->column_parts > 0)
        text_add(t, "#define LATHE_CLUSTER\n");
    text_add(t, "\nnamespace cfg {\n");
    text_add(t, "using element = %s;\n", element_name(problem->dtype));
    text_add(t, "constexpr bool FAST_MATH = %s;\n", lower_is_fast(ir, sig, problem) ? "true" : "false");
    if (ir->kind == KIND_ATTENTION)
        emit_attention_config(t, problem, plan);
    else if (ir->kind == KIND_ROWWISE)
        emit_rowwise_config(t, plan);
    else
        emit_elementwise_config(t, plan);
    if (plan->column_parts > 0)
        emit_many_config(t, plan);
    text_add(t, "} // namespace cfg\n");
}

/* ---- variant.gen.cuh ------------------------------------------------------------------------- */

/* Of a row-wise pass: its pool takes the place of the lowered spec. */
static bool emit_rows_variant(struct text_buf *t, const struct ir *ir, lathe_pass which,
                              const struct signature *sig, const struct problem *problem,
                              const struct plan *plan, struct source *out)
{
    struct emitter e = {0};
    struct row_pass pass;
    char why[ROW_WHY_BYTES];
    bool ok = row_pass_make(ir, which, sig, problem, &pass, why);
    ok = ok && (!plan->spreads || spread_take(pass.ir)) && emitter_open(&e, pass.ir, sig, problem, t);
    e.spec = ir;
    ok = ok && emit_row_pass(&e, &pass, plan, out);
    emitter_close(&e);
    row_pass_free(&pass);
    return ok;
}

/* The spec as the kernels of a pass compute it; `back` is filled in the backward pass of attention. */
static struct ir *lower_for(const struct ir *ir, bool backward, const struct signature *sig,
                            const struct problem *problem, struct backward *back)
{
    char why[WHY_BYTES];
    bool saved = false;
    struct ir *w = backward ? lower_backward(ir, sig, problem, back, why) : lower(ir, sig, problem);
    for (int k = 0; backward && w && k < MAX_STATE; k++) /* states that are saved must be those of the spec */
        saved |= back->state[k];
    if (w && ir->kind == KIND_ATTENTION) {
        if (!saved)
            pivot_pass(w, problem->dtype);
        ramps_pass(w);
        dead_pass(w);
        live_range_pass(w);
        bounds_build_reads(w);
    }
    if (!w || !w->failed)
        return w;
    ir_free(w); /* a pass ran out of nodes: some formula is another one now */
    return NULL;
}

static bool emit_variant(struct text_buf *config, struct text_buf *t, const struct ir *ir, lathe_pass pass,
                         const struct signature *sig, const struct problem *problem, const struct plan *plan,
                         struct source *out)
{
    const bool backward = pass == LATHE_BACKWARD && ir->kind == KIND_ATTENTION;
    struct emitter e = {0};
    struct backward back;
    text_add(
        t, "// variant.gen.cuh: written by lathe " LATHE_VERSION " from %s.lua; do not edit\n#pragma once\n",
        ir->name);
    text_add(t, "#include \"config.gen.cuh\"\n#include \"math.cuh\"\n%s\n",
             ir->kind == KIND_ELEMENTWISE ? "#include \"elementwise_parts.cuh\"\n" : "");
    if (plan->column_parts > 0) /* rowwise_many */
        return emit_rows_variant(t, ir, pass, sig, problem, plan, out);
    struct ir *w = lower_for(ir, backward, sig, problem, &back);
    if (!w) {
        text_exceed(t, IR_MAX_NODES, "nodes in its formulas, or memory ran out");
        return false;
    }
    bool ok = emitter_open(&e, w, sig, problem, t);
    e.spec = ir;
    e.back = backward ? &back : NULL;
    if (backward)
        emit_backward_config(config, &e, plan);
    if (ok)
        ok = kinds[ir->kind].emit(&e, plan, out);
    emitter_close(&e);
    ir_free(w);
    return ok;
}

/* ---- the list of texts ----------------------------------------------------------------------- */

static bool add_text(struct source *out, const char *name, const char *data, size_t size)
{
    if (out->n_texts == MAX_TEXTS)
        return false;
    char *copy = malloc(size + 1);
    if (!copy)
        return false;
    if (size > 0)
        memcpy(copy, data, size);
    copy[size] = 0;
    struct text *t = &out->text[out->n_texts++];
    snprintf(t->name, sizeof t->name, "%s", name);
    t->data = copy;
    t->size = size;
    return true;
}

static const struct text *find_text(const struct source *s, const char *name)
{
    for (int i = 0; i < s->n_texts; i++)
        if (strcmp(s->text[i].name, name) == 0)
            return &s->text[i];
    return NULL;
}

/* The next #include "name" at or after *at; false at the end. *at moves behind its line. */
static bool next_include(const char **at, char *name, size_t size)
{
    for (const char *line = *at; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        if (strncmp(line, "#include \"", 10) != 0)
            continue;
        const char *from = line + 10;
        size_t n = strcspn(from, "\"\n");
        if (from[n] != '"' || n >= size)
            continue;
        memcpy(name, from, n);
        name[n] = 0;
        const char *end = strchr(line, '\n');
        *at = end ? end + 1 : line + strlen(line);
        return true;
    }
    return false;
}

/* Templates named by texts that are already in the list, until none is missing. */
static bool add_templates(struct source *out)
{
    for (int i = 0; i < out->n_texts; i++) {
        const char *at = out->text[i].data;
        char name[48];
        while (next_include(&at, name, sizeof name)) {
            char path[64];
            snprintf(path, sizeof path, "templates/%s", name);
            const struct embedded *file = embedded_find(path);
            if (find_text(out, name))
                continue;
            if (!file || !add_text(out, name, file->data, file->size))
                return false;
        }
    }
    return true;
}

static bool is_role(const struct launch *launch, const struct ir *ir, lathe_dtype dtype, const char *role)
{
    char entry[NAME_MAX_BYTES];
    entry_name(ir, dtype, role, entry, sizeof entry);
    return strcmp(launch->entry, entry) == 0;
}

static void emit_main(struct text_buf *t, const struct source *out, const struct ir *ir, lathe_pass pass,
                      lathe_dtype dtype, const struct plan *plan)
{
    text_add(t, "// %s\n// written by lathe " LATHE_VERSION " from %s.lua; kernels:", out->label, ir->name);
    for (int i = 0; i < out->n_launches; i++)
        text_add(t, " %s", out->launch[i].entry);
    text_add(t, "\n#include \"config.gen.cuh\"\n#include \"variant.gen.cuh\"\n#include \"%s\"\n", plan->file);
    static const struct {
        const char *role; /* of an entry */
        const char *file;
    } MORE[] = {
        {"map", "tilemap.cuh"},          {"mod_q", "vector_mod.cuh"},    {"mod_k", "vector_mod.cuh"},
        {"mod_v", "vector_mod.cuh"},     {"mod_o", "vector_mod.cuh"},    {"fwd", "attention_fwd_sm80.cuh"},
        {"bwd_pre", "back_pre.cuh"},     {"bwd_map", "back_map.cuh"},    {"bwd_q", "back_mod.cuh"},
        {"bwd_k", "back_mod.cuh"},       {"bwd_v", "back_mod.cuh"},      {"bwd_o", "back_mod.cuh"},
        {"bwd_zero", "back_inputs.cuh"}, {"bwd_sum", "back_inputs.cuh"}, {"bwd_rows", "back_row_sums.cuh"},
        {"chain", "rowwise_chain.cuh"},
    };
    const char *before = plan->file;
    for (size_t m = 0; m < sizeof MORE / sizeof *MORE; m++) {
        const bool forward = strcmp(MORE[m].role, "fwd") == 0;
        bool here = false;
        for (int i = 0; i < out->n_launches; i++)
            here |= is_role(&out->launch[i], ir, dtype, MORE[m].role);
        if (!here || (forward && pass == LATHE_FORWARD) || strcmp(before, MORE[m].file) == 0)
            continue;
        text_add(t, "#include \"%s\"\n", MORE[m].file);
        before = MORE[m].file;
    }
}

static void make_label(struct source *out, const struct ir *ir, const struct problem *problem,
                       const struct plan *plan)
{
    const struct back_plan *back = &plan->back;
    if (back->bm)
        snprintf(out->label, sizeof out->label, "%s_%s_%s_d%d_v%d_m%dn%ds%dw%d", ir->name,
                 plan->template_name, lathe_dtype_text(problem->dtype), (int)problem->dim[SYM_D],
                 (int)problem->dim[SYM_D_V], back->bm, back->bn, back->stages, back->warps);
    else if (ir->kind == KIND_ATTENTION)
        snprintf(out->label, sizeof out->label, "%s_%s_%s_d%d_v%d_m%dn%ds%dw%d", ir->name,
                 plan->template_name, lathe_dtype_text(problem->dtype), (int)problem->dim[SYM_D],
                 (int)problem->dim[SYM_D_V], plan->bm, plan->bn, plan->stages, plan->warps);
    else if (ir->kind == KIND_ELEMENTWISE)
        snprintf(out->label, sizeof out->label, "%s_%s_%s_t%dv%du%ds%d", ir->name, plan->template_name,
                 lathe_dtype_text(problem->dtype), plan->threads, plan->vector, plan->unroll, plan->steps);
    else
        snprintf(out->label, sizeof out->label, "%s_%s_%s_t%dv%dp%dr%d", ir->name, plan->template_name,
                 lathe_dtype_text(problem->dtype), plan->threads, plan->vector, plan->per_thread,
                 plan->rows_per_block);
}

/* `failure` gets what has failed. */
static bool assemble(struct source *out, const struct ir *ir, lathe_pass pass, const struct signature *sig,
                     const struct problem *problem, const struct plan *plan, struct text_buf *failure)
{
    struct text_buf config = {0};
    struct text_buf variant = {0};
    struct text_buf body = {0};
    make_label(out, ir, problem, plan);
    emit_config(&config, ir, sig, problem, plan);
    bool ok = emit_variant(&config, &variant, ir, pass, sig, problem, plan, out);
    emit_compiled_parts(&config, ir, problem->dtype, out);
    emit_main(&body, out, ir, pass, problem->dtype, plan);
    ok = ok && !config.failed && !variant.failed && !body.failed;
    ok = ok && add_text(out, "kernel.cu", body.data, body.size) &&
         add_text(out, "config.gen.cuh", config.data, config.size) &&
         add_text(out, "variant.gen.cuh", variant.data, variant.size) && add_templates(out);
    text_fail_with(failure, &config);
    text_fail_with(failure, &variant);
    text_free(&config);
    text_free(&variant);
    text_free(&body);
    return ok;
}

static void say_why(lathe_error *err, const struct ir *ir, const struct text_buf *failure)
{
    if (!err)
        return;
    *err = (lathe_error){.status = failure->too_many ? LATHE_UNSUPPORTED : LATHE_MEMORY};
    if (failure->too_many)
        snprintf(err->text, sizeof err->text,
                 "%s: too large for one kernel, which has at most %d %s; make it several specs", ir->name,
                 failure->most, failure->too_many);
    else
        snprintf(err->text, sizeof err->text, "%s: memory ran out while the kernel was written", ir->name);
}

lathe_status emit(const struct ir *ir, lathe_pass pass, const struct signature *sig,
                  const struct problem *problem, const struct device *device, const struct plan *plan,
                  struct source *out, lathe_error *err)
{
    (void)device;
    memset(out, 0, sizeof *out);
    if (ir->kind == KIND_ELEMENTWISE && pass == LATHE_BACKWARD)
        ir = ir->gradient;
    struct text_buf failure = {0};
    if (assemble(out, ir, pass, sig, problem, plan, &failure))
        return LATHE_OK;
    source_free(out);
    say_why(err, ir, &failure);
    return failure.too_many ? LATHE_UNSUPPORTED : LATHE_MEMORY;
}

/* ---- one file -------------------------------------------------------------------------------- */

struct inliner {
    const struct source *source;
    struct text_buf *out;
    bool done[MAX_TEXTS];
};

enum { MAX_NESTING = 16 };

/* A text with its includes in place, each once; depth is bounded by the number of texts. */
static void inline_text(struct inliner *in, int number, int depth)
{
    if (in->done[number] || depth > MAX_NESTING)
        return;
    in->done[number] = true;
    const struct text *t = &in->source->text[number];
    if (number > 0)
        text_add(in->out, "\n// ==== %s\n", t->name);
    const char *line = t->data;
    while (*line) {
        size_t n = strcspn(line, "\n");
        char name[48];
        const char *at = line;
        bool include = strncmp(line, "#include \"", 10) == 0 && next_include(&at, name, sizeof name);
        const struct text *other = include ? find_text(in->source, name) : NULL;
        if (other)
            inline_text(in, (int)(other - in->source->text), depth + 1);
        else if (strncmp(line, "#pragma once", 12) != 0)
            text_add(in->out, "%.*s\n", (int)n, line);
        line += n + (line[n] == '\n');
    }
}

void emit_inline(const struct source *source, struct text_buf *out)
{
    struct inliner in = {.source = source, .out = out};
    inline_text(&in, 0, 0);
}
