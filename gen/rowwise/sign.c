/*
 * sign.c: which arguments a row-wise spec takes: x, y, finals, which may be rows, values of a row or totals,
 * and the spec's inputs; backward also seeds and gradients.
 */
#include "gen/arguments/sign.h"
#include "gen/ir/kind.h"
#include "gen/rowwise/columns.h"
#include "gen/rowwise/pass.h"

/* One row to one row, with values of each row beside it: one kernel asks at the launch which of these are
   wanted. */
static bool is_asked_at_launch(const struct ir *ir)
{
    bool apart = ir->inner || ir->no_y;
    for (int i = 0; i < ir->n_nodes; i++)
        apart |= ir_op_is_scan(ir->node[i].op);
    for (int i = 0; i < ir->n_finals; i++)
        apart |= ir->final[i].total || ir_result_is_row(ir, i);
    for (int i = 0; i < ir->n_inputs; i++)
        apart |= ir->input[i].rows != INPUT_TABLE;
    return !apart;
}

static void add_rows(struct signature *s, const struct ir *ir, enum arg_role role, const char *name)
{
    struct sig_arg *a = sign_main(s, role, DTYPE_X, name, NULL, 0);
    if (!a)
        return;
    a->leading_optional = true;
    sign_row_dims(a, ir, 4);
}

/* A result beside y, or its seed: f32 where it is one value per row. */
static struct sig_arg *add_row_result(struct signature *s, const struct ir *ir, int k, enum arg_role role,
                                      const char *prefix)
{
    struct sig_arg *a = sign_add(s, role, prefix, ir->final[k].name);
    if (!a)
        return NULL;
    const bool row = ir_result_is_row(ir, k);
    const bool whole = ir_result_is_whole(ir, k);
    a->dtype = whole ? LATHE_I32 : row ? LATHE_NONE : LATHE_F32;
    a->dtype_role = row && !whole ? DTYPE_X : DTYPE_USUAL;
    a->unit_last = row;
    a->optional = true;
    a->leading_optional = !ir->final[k].total;
    sign_row_dims(a, ir, ir->final[k].total ? 0 : row ? 4 : 3);
    for (int d = 0; d < a->ndim && ir->final[k].first > 0; d++)
        if (a->dim[d].sym == SYM_N)
            a->dim[d] = (struct sig_dim){.sym = SYM_ONE, .literal = ir->final[k].first};
    return a;
}

static void add_backward(struct signature *s, const struct ir *ir)
{
    if (!ir->no_y)
        add_rows(s, ir, ROLE_IN, "dy");
    for (int i = 0; i < ir->n_finals; i++) {
        if (ir_result_is_whole(ir, i))
            continue; /* it has no gradient */
        struct sig_arg *seed = add_row_result(s, ir, i, ROLE_IN, "d");
        if (seed)
            seed->rare = !ir->no_y;
    }
    add_rows(s, ir, ROLE_OUT_OPTIONAL, "dx");
    sign_input_gradients(s, ir);
}

static const struct sig_size SIZES[] = {
    {.sym = SYM_ROWS0, .usual = 1, .implied = true, .counted = true},
    {.sym = SYM_ROWS1, .usual = 1, .implied = true, .counted = true},
    {.sym = SYM_ROWS, .usual = 1024, .counted = true},
    {.sym = SYM_N, .usual = 1024, .built = true, .positive = true, .below = SIZE_POSITIONS},
};
static const struct sig_size FREE_SIZE = {.named = true};

/* A parameter that cannot be left out has dims of 1: of one group, say. */
static void set_parameters(struct signature *s)
{
    for (int i = 0; i < s->n_args; i++)
        for (int k = 0; k < s->arg[i].ndim && !s->arg[i].optional; k++)
            for (int size = 0; size < s->n_sizes; size++)
                if (s->arg[i].dim[k].literal == 0 && s->arg[i].dim[k].sym >= SYM_FREE &&
                    s->size[size].sym == s->arg[i].dim[k].sym)
                    s->size[size].usual = 1;
}

/* A block steps from group to group of rows by up to as many as there are: the number after the last one is
   below 2^31. */
static void add_sizes(struct signature *s)
{
    s->most_counted = 1 << 30;
    s->sharing = SHARING_ROWS;
    sign_sizes(s, SIZES, sizeof SIZES / sizeof SIZES[0]);
    sign_free_sizes(s, &FREE_SIZE);
    set_parameters(s);
}

void sign_rowwise(struct signature *s, const struct ir *ir, bool backward)
{
    add_rows(s, ir, ROLE_IN, "x");
    if (!backward && !ir->no_y)
        add_rows(s, ir, ROLE_OUT, "y");
    for (int i = 0; i < ir->n_finals; i++)
        if (!backward || !(ir->final[i].total || ir->final[i].first > 0))
            add_row_result(s, ir, i, backward ? ROLE_IN : ROLE_OUT_OPTIONAL, "");
    sign_inputs(s, ir);
    if (backward)
        add_backward(s, ir);
    s->builds_alignment = true;
    add_sizes(s);
    if (backward || !is_asked_at_launch(ir))
        sign_presence_built(s);
}
