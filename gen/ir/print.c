/*
 * print.c: IR as text, for golden tests and for `lathe explain`. In: ir. Out: one line a node that is
 * used, renumbered in order, then the functions by their roots. Deterministic and independent of locale.
 */
#include "gen/ir/kind.h"
#include "gen/base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_span(struct text_buf *out, const struct ir *ir, unsigned span)
{
    static const char *const name[2][MAX_OVER] = {{"q", "kv", "dim", "split", ""}, {"0", "1", "2", "3", "4"}};
    const bool map = kinds[ir->kind].points; /* dims of the map */
    if (span == 0)
        text_add(out, map ? " once" : " head");
    for (unsigned i = 0; i < MAX_OVER; i++)
        if (span >> i & 1)
            text_add(out, " %s", name[map][i]);
}

/* Leaves from one number on; those that are many count on from there. */
static const struct {
    int first;
    const char *name;
    bool many;
} LEAVES[] = {{LEAF_QK, "qk", false},        {LEAF_S, "s", false},         {LEAF_X, "x", false},
              {LEAF_LO, "lo", false},        {LEAF_HI, "hi", false},       {LEAF_ROWX, "x", false},
              {LEAF_W, "w", false},          {LEAF_DW, "dw", false},       {LEAF_DFINAL, "dfinal", true},
              {LEAF_DX, "dx", false},        {LEAF_DLO, "dlo", false},     {LEAF_DHI, "dhi", false},
              {LEAF_DROWY, "dy", false},     {LEAF_DROW, "drow", true},    {LEAF_SAVED, "saved", true},
              {LEAF_DSTAT, "dstat", true},   {LEAF_DELTA, "delta", false}, {LEAF_ROWSUM, "rowsum", true},
              {LEAF_HIGH, "high", true},     {LEAF_NORM, "norm", true},    {LEAF_ROW0, "row0", false},
              {LEAF_ROW1, "row1", false},    {LEAF_Q0, "q0", false},       {LEAF_Q1, "q1", false},
              {LEAF_KV0, "kv0", false},      {LEAF_KV1, "kv1", false},     {LEAF_READ, "read", true},
              {LEAF_BOX, "box", true},       {LEAF_PLACE, "place", true},  {LEAF_V, "v", false},
              {LEAF_DTOKEN, "dtoken", false}};

static void param_name(const struct ir *ir, int p, char *out, size_t size)
{
    const int tensor = (p - LEAF_TENSOR) / 2;
    size_t i = 0;
    if (p >= LEAF_STATE && p < LEAF_FINAL)
        snprintf(out, size, "state.%s", ir->state[p - LEAF_STATE].name);
    else if (p >= LEAF_FINAL && p < LEAF_SPLIT_STATE)
        snprintf(out, size, "final.%s", ir->final[p - LEAF_FINAL].name);
    else if (p >= LEAF_SPLIT_STATE && p < LEAF_DW)
        snprintf(out, size, "part.%s", ir->state[p - LEAF_SPLIT_STATE].name);
    else if (p >= LEAF_TENSOR && p < LEAF_READ)
        snprintf(out, size, "%s%s", ir->maps.tensor[tensor].name,
                 ir->maps.tensor[tensor].form == STAGE_ELEMENT ? ""
                 : (p - LEAF_TENSOR) % 2                       ? ".hi"
                                                               : ".lo");
    else {
        while (i + 1 < sizeof LEAVES / sizeof *LEAVES && LEAVES[i + 1].first <= p)
            i++;
        const int written = snprintf(out, size, "%s", LEAVES[i].name);
        if (LEAVES[i].many)
            snprintf(out + written, size - (size_t)written, ".%d", p - LEAVES[i].first);
    }
}

/* Shortest decimal that reads back as the same double; exact for what specs write. */
static void print_number(struct text_buf *out, double v)
{
    if (isinf(v) || isnan(v)) {
        text_add(out, "%s", isnan(v) ? "nan" : v > 0 ? "inf" : "-inf");
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        char s[40];
        snprintf(s, sizeof s, "%.*g", digits, v);
        if (strtod(s, NULL) != v && digits < 17)
            continue;
        for (char *c = s; *c; c++)
            if (!strchr("0123456789+-e", *c))
                *c = '.'; /* whatever the locale's point is */
        text_add(out, "%s", s);
        return;
    }
}

static void print_leaf(struct text_buf *out, const struct ir *ir, const struct ir_node *n)
{
    static const char *const at_names[] = {
#define AT_NAME(id, name, span) name,
        AT_MAP(AT_NAME)
#undef AT_NAME
    };
    char name[64];
    if (n->op == OP_CONST && n->type == TYPE_BOOL)
        text_add(out, "%s", yes(n->value != 0));
    else if (n->op == OP_CONST)
        print_number(out, n->value);
    else if (ir_free_size(n) >= 0)
        text_add(out, "at.n_%s", ir->free_name[ir_free_size(n)]);
    else if (n->op == OP_AT)
        text_add(out, "at.%s", at_names[n->index]);
    else if (n->op == OP_PARAM) {
        param_name(ir, n->index, name, sizeof name);
        text_add(out, "%s", name);
    } else {
        text_add(out, "%s %s", n->op == OP_LOAD ? "load" : "scalar", ir->input[n->index].name);
    }
}

static void print_node(struct text_buf *out, const struct ir *ir, int i, const int *number)
{
    const struct ir_node *n = &ir->node[i];
    text_add(out, "  %%%d = ", number[i]);
    if (n->op <= OP_LOAD)
        print_leaf(out, ir, n);
    else
        text_add(out, "%s", ir_op_name(n->op));
    for (int k = 0; k < n->n_args; k++)
        text_add(out, " %%%d", number[n->arg[k]]);
    text_add(out, " : %s,", ir_type_name(n->type));
    print_span(out, ir, n->span);
    if (n->phase)
        text_add(out, ", phase %d", n->phase);
    if (n->rounded && n->op > OP_LOAD)
        text_add(out, ", rounded");
    const char *slash = strrchr(ir->file[n->file], '/');
    if (n->line && n->op > OP_LOAD)
        text_add(out, "  // %s:%d", slash ? slash + 1 : ir->file[n->file], n->line);
    text_add(out, "\n");
}

static void print_fn(struct text_buf *out, const struct ir *ir, const char *name, const struct ir_fn *fn)
{
    if (fn->n_roots == 0)
        return;
    bool *used = calloc((size_t)ir->n_nodes, sizeof *used);
    int *number = calloc((size_t)ir->n_nodes, sizeof *number);
    if (!used || !number) {
        out->failed = true;
    } else {
        ir_mark(ir, fn->root, fn->n_roots, used);
        text_add(out, "%s:\n", name);
        int n = 0;
        for (int i = 0; i < ir->n_nodes; i++)
            if (used[i]) {
                number[i] = n++;
                print_node(out, ir, i, number);
            }
        text_add(out, "  return");
        for (int i = 0; i < fn->n_roots; i++)
            text_add(out, " %%%d", number[fn->root[i]]);
        text_add(out, "\n");
    }
    free(used);
    free(number);
}

void ir_print_roots(const struct ir *ir, const char *name, const int *root, int n, struct text_buf *out)
{
    struct ir_fn fn = {.n_roots = n};
    for (int i = 0; i < n; i++)
        fn.root[i] = root[i];
    print_fn(out, ir, name, &fn);
}

static void print_mods(struct text_buf *out, const struct ir *ir)
{
    static const char *const mod[] = {"query_mod", "key_mod", "value_mod", "output_mod"};
    static const char *const form[] = {"", " half", " interleaved"};
    for (int m = 0; m < MOD_COUNT; m++)
        for (int s = 0; s < ir->mod[m].n_stages; s++) {
            char name[48];
            const struct ir_stage *stage = &ir->mod[m].stage[s];
            const int n = snprintf(name, sizeof name, "%s%s", mod[m], form[stage->form]);
            if (stage->paired > 0)
                snprintf(name + n, sizeof name - (size_t)n, " of %d", stage->paired);
            print_fn(out, ir, name, &ir->mod[m].stage[s].fn);
        }
}

static void print_end(struct text_buf *out, const struct range_end *end)
{
    text_add(out, "%s", end->dim);
    if (!end->dim[0] || end->number != 0)
        text_add(out, end->dim[0] ? "%+" PRId64 : "%" PRId64, end->number);
}

static void print_range(struct text_buf *out, const struct input_range *r)
{
    if (r->real) {
        text_add(out, " from ");
        print_number(out, r->least);
        text_add(out, " to ");
        print_number(out, r->most);
        text_add(out, "%s", r->unit ? ", vectors of length 1 at most" : "");
    }
    if (!r->declared)
        return;
    text_add(out, " from ");
    print_end(out, &r->low);
    text_add(out, " below ");
    print_end(out, &r->high);
}

static void print_inputs(struct text_buf *out, const struct ir *ir)
{
    static const char *const sym[] = {
#define SYM_TEXT(id, text, what) text,
        SYM_MAP(SYM_TEXT)
#undef SYM_TEXT
    };
    for (int i = 0; i < ir->n_inputs; i++) {
        const struct input *in = &ir->input[i];
        text_add(out, "input %s %s", in->name,
                 in->dtype == LATHE_NONE ? "float" : lathe_dtype_text(in->dtype));
        for (int d = 0; d < in->n_dims; d++)
            if (in->dim[d].literal)
                text_add(out, " %" PRId32, in->dim[d].literal);
            else
                text_add(out, " %s",
                         in->dim[d].sym >= SYM_FREE ? ir->free_name[in->dim[d].sym - SYM_FREE]
                                                    : sym[in->dim[d].sym]);
        text_add(out, "%s%s%s%s%s", in->grad ? " grad" : "", in->optional ? " optional" : "",
                 in->range.sorted ? " sorted" : "", in->range.sorted_by[0] ? " by " : "",
                 in->range.sorted_by);
        print_range(out, &in->range);
        text_add(out, "\n");
    }
}

static void print_tensor(struct text_buf *out, const struct ir *ir, const struct map_tensor *t)
{
    static const char *const use[] = {"operand", "result", "sum", "scatter"};
    static const char *const form[] = {"", " half", " interleaved"};
    text_add(out, "  %s %s %s", use[t->use], t->name,
             t->dtype == LATHE_NONE ? "float" : lathe_dtype_text(t->dtype));
    if (t->slot)
        text_add(out, " %s at %s", ir->free_name[t->slots - SYM_FREE], ir->maps.tensor[t->slot - 1].name);
    for (int d = 0; d < t->n_dims; d++)
        text_add(out, " %s", ir->free_name[ir->maps.map[t->map].over[t->dim[d]] - SYM_FREE]);
    text_add(out, "%s%s%s", form[t->form], t->grad ? " grad" : "", t->optional ? " optional" : "");
    if (t->alias >= 0)
        text_add(out, " alias %s", ir->maps.tensor[t->alias].name);
    if (t->dither >= 0)
        text_add(out, " dither %s", ir->input[t->dither].name);
    if (t->use == USE_SCATTER)
        text_add(out, " as %s", ir->input[t->input].name);
    text_add(out, "\n");
}

static void print_map(struct text_buf *out, const struct ir *ir, int m)
{
    const struct ir_map *map = &ir->maps.map[m];
    struct ir_fn fn = map->fn;
    text_add(out, "map%s over", map->list ? " of a list" : "");
    for (int k = 0; k < map->n_over; k++)
        text_add(out, " %s", ir->free_name[map->over[k] - SYM_FREE]);
    text_add(out, "\n");
    for (int k = 0; k < ir->maps.n_tensors; k++)
        if (ir->maps.tensor[k].map == m)
            print_tensor(out, ir, &ir->maps.tensor[k]);
    print_fn(out, ir, "point", &fn);
    for (int s = 0; s < map->n_scatters; s++) {
        fn = (struct ir_fn){.n_roots = 1, .root = {map->scatter[s].value}};
        for (int d = 0; d < ir->input[ir->maps.tensor[map->scatter[s].tensor].input].n_dims; d++)
            fn.root[fn.n_roots++] = map->scatter[s].index[d];
        print_fn(out, ir, ir->maps.tensor[map->scatter[s].tensor].name, &fn);
    }
}

static void print_linear(struct text_buf *out, const struct ir *ir)
{
    const struct ir_linear *l = &ir->linear;
    for (int k = 0; k < LINEAR_SLOTS; k++)
        print_fn(out, ir, linear_slot_of((enum linear_function)(k + 1))->name, &l->slot[k]);
    text_add(out, "%s%s%s%s", l->normalise ? "normalised\n" : "", l->all_tokens ? "over all tokens\n" : "",
             l->reverse ? "reverse\n" : "", l->read_first ? "read first\n" : "");
    if (ir_updates(ir) > 1)
        text_add(out, "updates %d\n", l->updates);
    if (ir_query_heads(ir) > 1)
        text_add(out, "query heads %d\n", l->query_heads);
}

void ir_print(const struct ir *ir, struct text_buf *out)
{
    text_add(out, "%s %s\n", kinds[ir->kind].name, ir->name);
    if (ir->inner)
        text_add(out, "along -2\n");
    if (ir->v_is_k)
        text_add(out, "v = k\n");
    if (ir->qk2)
        text_add(out, "q2, k2\n");
    print_inputs(out, ir);
    for (int i = 0; i < ir->n_states; i++) {
        text_add(out, "state %s = ", ir->state[i].name);
        print_number(out, ir->state[i].init);
        text_add(out, "\n");
    }
    for (int i = 0; i < ir->n_finals; i++) {
        text_add(out, "final %s%s", ir->final[i].name, ir->final[i].total ? ", a total" : "");
        if (ir->final[i].first > 0) {
            text_add(out, ", the first %d, else ", ir->final[i].first);
            print_number(out, ir->final[i].fill);
        }
        text_add(out, "\n");
    }
    print_mods(out, ir);
    print_fn(out, ir, "scale", &ir->scale);
    print_fn(out, ir, "mask", &ir->mask);
    print_fn(out, ir, "score", &ir->score);
    print_fn(out, ir, "online_fwd", &ir->online);
    print_fn(out, ir, "online_fwd_epilogue", &ir->epilogue);
    print_fn(out, ir, "forward", &ir->forward);
    print_fn(out, ir, "combine", &ir->combine);
    print_fn(out, ir, "backward", &ir->backward);
    print_linear(out, ir);
    print_fn(out, ir, "rowwise forward", &ir->row);
    for (int m = 0; m < ir->maps.n_maps; m++)
        print_map(out, ir, m);
    if (ir->maps.gradient) {
        text_add(out, "backward: ");
        ir_print(ir->maps.gradient, out);
    }
}
