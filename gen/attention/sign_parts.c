/*
 * sign_parts.c: parts of a row of attention as arguments: results of the forward pass in the place of o and
 * the finals, and what the pass that puts them together takes. In: a checked spec. Out: arguments and sizes
 * in a signature, or why there are none.
 */
#include "gen/arguments/problem.h"
#include "gen/arguments/sign.h"
#include "gen/attention/columns.h"
#include "gen/attention/places.h"
#include "gen/attention/sign_parts.h"
#include "gen/ir/kind.h"
#include "gen/ir/spec.h"
#include "runtime/recipe/bind.h"

#include <stdio.h>

static const enum sym OUTPUT[] = {SYM_PARTS, SYM_B, SYM_H, SYM_Q, SYM_D_V}; /* of one part: from b on */

/* ---- what ends a row ---------------------------------------------------------------------------- */

static bool fn_reads(const struct ir *ir, const struct ir_fn *fn, enum ir_op op, int index)
{
    bool found = false;
    for (int i = 0; i < fn->n_roots; i++)
        found = found || ir_depends_on(ir, fn->root[i], op, index);
    return found;
}

/* Do combine, the epilogue or the mod of o read it? */
static bool end_reads(const struct ir *ir, enum ir_op op, int index)
{
    const struct ir_mod *mod = &ir->mod[MOD_OUTPUT];
    bool found = fn_reads(ir, &ir->combine, op, index) || fn_reads(ir, &ir->epilogue, op, index);
    for (int s = 0; s < mod->n_stages; s++)
        found = found || fn_reads(ir, &mod->stage[s].fn, op, index);
    return found;
}

static bool end_reads_one(const struct ir *ir, const enum at_field *field, int n)
{
    bool found = false;
    for (int i = 0; i < n; i++)
        found = found || end_reads(ir, OP_AT, (int)field[i]);
    return found;
}

/* Tensors of parts have neither keys nor key heads. */
static bool find_reason(const struct ir *ir, char out[NO_PARTS_BYTES])
{
    static const struct {
        enum at_field field;
        const char *name;
    } unknown[] = {
        {AT_H_KV, "h_kv"},
        {AT_N_H_KV, "n_h_kv"},
        {AT_LEN_KV, "len_kv"},
        {AT_D, "d"},
    };
    if (ir->combine.n_roots == 0) {
        snprintf(out, NO_PARTS_BYTES,
                 "its online_func has no combine, by which parts of a row become one; give it one, as "
                 "softmax_combine of specs/prelude.lua is, or give all keys to one launch");
        return true;
    }
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        if (end_reads(ir, OP_AT, (int)unknown[i].field)) {
            snprintf(out, NO_PARTS_BYTES,
                     "its combine, online_fwd_epilogue or output_mod reads at.%s, which parts of rows do not "
                     "tell; give it as a scalar input",
                     unknown[i].name);
            return true;
        }
    for (int k = 0; k < ir->n_free; k++)
        if (end_reads(ir, OP_AT, AT_FREE0 + k)) {
            snprintf(
                out, NO_PARTS_BYTES,
                "its combine, online_fwd_epilogue or output_mod reads the size of a dim of inputs, which "
                "parts of rows do not tell; give it as a scalar input");
            return true;
        }
    return false;
}

static bool reads_position(const struct ir *ir)
{
    static const enum at_field field[] = {AT_Q, AT_POS};
    return end_reads_one(ir, field, 2);
}

/* ---- the two tensors ----------------------------------------------------------------------------- */

static struct sig_arg *add_f32(struct signature *s, enum arg_role role, const char *name, int first)
{
    struct sig_arg *a = sign_add(s, role, "", name);
    if (!a)
        return NULL;
    a->dtype = LATHE_F32;
    a->unit_last = true;
    sign_dims(a, OUTPUT + first, 5 - first);
    return a;
}

/* Row states, and whether the row has had a live pair. */
static struct sig_arg *add_rows(struct signature *s, const struct ir *ir, enum arg_role role,
                                const char *name, int first)
{
    struct sig_arg *a = add_f32(s, role, name, first);
    if (a)
        a->dim[4 - first] = (struct sig_dim){.literal = ir->n_states + 1};
    return a;
}

static void leave_out_beside(struct signature *s, const char *name, int part)
{
    const int i = lathe__arg_find(s, name, 0);
    if (i >= 0)
        s->arg[i].unless = (uint8_t)(1 + part);
}

/* A part as a result, in the place of o and the finals. */
static void add_part(struct signature *s, const struct ir *ir, const char *o, const char *rows)
{
    const int part = s->n_args;
    struct sig_arg *const arg[] = {add_f32(s, ROLE_OUT_OPTIONAL, o, 1),
                                   add_rows(s, ir, ROLE_OUT_OPTIONAL, rows, 1)};
    for (int i = 0; i < 2 && arg[0] && arg[1]; i++) {
        arg[i]->optional = true;
        arg[i]->rare = true;
        arg[i]->presence_built = true;
        arg[i]->beside = (uint8_t)(1 + part + (i == 0));
    }
    leave_out_beside(s, "o", part);
    for (int i = 0; i < ir->n_finals; i++)
        leave_out_beside(s, ir->final[i].name, part);
}

void sign_parts(struct signature *s, const struct ir *ir)
{
    static const enum at_field token[] = {AT_B, AT_N_B, AT_ROW, AT_LEN_Q};
    if (find_reason(ir, s->no_parts))
        return;
    add_part(s, ir, "part_o", "part_rows");
    s->parts_by_token = end_reads_one(ir, token, 4);
    s->parts_by_key = reads_position(ir);
}

bool makes_parts(const struct signature *sig, const struct problem *problem)
{
    return problem_has_named(sig, problem, sig->combine ? "merged_o" : "part_o");
}

/* ---- the pass that puts them together -------------------------------------------------------------- */

static void add_results(struct signature *s, const struct ir *ir)
{
    sign_main(s, ROLE_OUT, DTYPE_O, "o", OUTPUT + 1, 4);
    for (int i = 0; i < ir->n_finals; i++) {
        struct sig_arg *a = sign_add(s, ROLE_OUT_OPTIONAL, "", ir->final[i].name);
        if (!a)
            return;
        a->dtype = LATHE_F32;
        a->optional = true;
        sign_dims(a, OUTPUT + 1, 3);
    }
}

static void add_end_inputs(struct signature *s, const struct ir *ir)
{
    for (int i = 0; i < ir->n_inputs; i++)
        if (end_reads(ir, ir->input[i].is_scalar ? OP_SCALAR : OP_LOAD, i))
            sign_input(s, ir, &ir->input[i]);
    sign_places(s, SYM_ALL_H, "h_start", "n_h");
    if (!reads_position(ir))
        return;
    struct sig_arg *start = sign_add(s, ROLE_Q_START, "", "q_start");
    if (start)
        start->dtype = LATHE_I32;
}

void sign_attention_combine(struct signature *s, const struct ir *ir)
{
    const struct sig_size sizes[] = {
        {.sym = SYM_PARTS, .usual = 2, .positive = true},
        {.sym = SYM_B, .usual = 1, .counted = true},
        {.sym = SYM_H, .usual = 8, .positive = true, .counted = true},
        {.sym = SYM_H_KV, .same_as = SYM_H, .positive = true, .implied = true},
        {.sym = SYM_Q, .usual = 1024, .below = SIZE_POSITIONS, .counted = true},
        {.sym = SYM_KV, .same_as = SYM_Q, .implied = true},
        SIGN_HEAD_DIMS(ATTENTION_MOST_DIM, ATTENTION_MOST_DIM, ATTENTION_DIM_STEP),
    };
    static const struct sig_size free_size = {.named = true};
    if (find_reason(ir, s->no_parts))
        return;
    add_f32(s, ROLE_IN, "part_o", 0);
    add_rows(s, ir, ROLE_IN, "part_rows", 0);
    add_results(s, ir);
    add_end_inputs(s, ir);
    add_part(s, ir, "merged_o", "merged_rows");
    sign_whole_inputs(s, ir);
    const struct sig_size heads = {.sym = SYM_ALL_H,
                                   .same_as = SYM_H,
                                   .beside = (uint8_t)(1 + lathe__place_find(s, ROLE_TOTAL, SYM_ALL_H))};
    s->builds_alignment = true;
    s->sharing = SHARING_NONE;
    sign_sizes(s, sizes, sizeof sizes / sizeof sizes[0]);
    sign_sizes(s, &heads, 1);
    sign_free_sizes(s, &free_size);
}
