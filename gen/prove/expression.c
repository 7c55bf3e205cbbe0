/*
 * expression.c: a node as text, near to what the spec has: for messages. In: a node. Out: text in the
 * caller's buffer; what lies deeper than a few levels is "...".
 */
#include "gen/prove/index_ranges.h"
#include "gen/ir/spec.h"
#include "runtime/base/base.h"

#include <stdio.h>
#include <string.h>

enum { DEPTH = 5 };

struct writer {
    const struct ir *ir;
    const struct ir_map *map;
    char *out;
    size_t size;
    size_t used;
};

static void put(struct writer *w, const char *text)
{
    const size_t left = w->size - w->used;
    const int n = snprintf(w->out + w->used, left, "%s", text);
    w->used += (size_t)n < left ? (size_t)n : left - 1;
}

static void put_leaf(struct writer *w, const struct ir_node *n)
{
    static const char *const at_name[AT_COUNT] = {
#define AT_NAME(id, name, span) name,
        AT_MAP(AT_NAME)
#undef AT_NAME
    };
    char text[80];
    const int size = n->index - AT_SIZE0;
    const int index = n->index - AT_INDEX0;
    if (n->op == OP_CONST)
        lathe__print(text, sizeof text, n->type == TYPE_I32 ? "%.0f" : "%.6g", n->value);
    else if (n->op == OP_PARAM)
        snprintf(text, sizeof text, "%s",
                 n->index < LEAF_TENSOR || n->index >= LEAF_V ? "a value" : "an operand");
    else if (ir_free_size(n) >= 0)
        snprintf(text, sizeof text, "at.n_%s", w->ir->free_name[ir_free_size(n)]);
    else if (n->op == OP_AT && index >= 0 && w->map)
        snprintf(text, sizeof text, "at.%s%s", size >= 0 ? "n_" : "",
                 w->ir->free_name[w->map->over[size >= 0 ? size : index] - SYM_FREE]);
    else if (n->op == OP_AT)
        snprintf(text, sizeof text, "at.%s", at_name[n->index]);
    else
        snprintf(text, sizeof text, "x.%s", w->ir->input[n->index].name);
    put(w, text);
}

static bool is_infix(int op)
{
    return op == OP_ADD || op == OP_SUB || op == OP_MUL || op == OP_DIV || op == OP_IDIV || op == OP_MOD ||
           op == OP_POW || (op >= OP_AND && op <= OP_SHR && op != OP_NOT);
}

static void put_node(struct writer *w, int node, int depth);

static void put_arguments(struct writer *w, const struct ir_node *n, int depth)
{
    put(w, "(");
    for (int k = 0; k < n->n_args; k++) {
        put(w, k ? ", " : "");
        put_node(w, n->arg[k], depth);
    }
    put(w, ")");
}

static void put_infix(struct writer *w, const struct ir_node *n, int depth)
{
    for (int k = 0; k < 2; k++) {
        const bool inner = is_infix(w->ir->node[n->arg[k]].op);
        put(w, k ? " " : "");
        put(w, k ? ir_op_name(n->op) : "");
        put(w, k ? " " : "");
        put(w, inner ? "(" : "");
        put_node(w, n->arg[k], depth);
        put(w, inner ? ")" : "");
    }
}

static void put_node(struct writer *w, int node, int depth)
{
    const struct ir_node *n = &w->ir->node[node];
    if (n->op < OP_LOAD) {
        put_leaf(w, n);
    } else if (depth == 0) {
        put(w, "...");
    } else if (n->op == OP_LOAD) {
        put_leaf(w, n);
        put_arguments(w, n, depth - 1);
    } else if (is_infix(n->op)) {
        put_infix(w, n, depth - 1);
    } else {
        put(w, n->op == OP_NEG ? "-" : n->op == OP_NOT ? "~" : ir_op_name(n->op));
        put_arguments(w, n, depth - 1);
    }
}

void expression_text(const struct ir *ir, const struct ir_map *map, int node, char *out, size_t size)
{
    struct writer w = {ir, map, out, size, 0};
    out[0] = 0;
    put_node(&w, node, DEPTH);
    if (w.used + 1 == size && size > 4)
        memcpy(out + size - 4, "...", 4);
}
