/*
 * walks.c: passes over the node pool: what lies below some nodes, the same graph with other leaves, a copy.
 * In and out: a struct ir. A pass in order is a topological sweep, so none recurses.
 */
#include "gen/ir/spec.h"

#include <stdlib.h>
#include <string.h>

void ir_mark(const struct ir *ir, const int *root, int n, bool *used)
{
    memset(used, 0, (size_t)ir->n_nodes * sizeof *used);
    int last = -1;
    for (int i = 0; i < n; i++) {
        used[root[i]] = true;
        last = root[i] > last ? root[i] : last;
    }
    for (int i = last; i >= 0; i--)
        for (int k = 0; used[i] && k < ir->node[i].n_args; k++)
            used[ir->node[i].arg[k]] = true;
}

void ir_mark_until(const struct ir *w, const int *root, int n_roots, const int *stop, int n_stop, bool *out)
{
    memset(out, 0, (size_t)w->n_nodes * sizeof *out);
    for (int i = 0; i < n_roots; i++)
        out[root[i]] = true;
    for (int i = w->n_nodes - 1; i >= 0; i--) {
        bool stopped = !out[i];
        for (int k = 0; k < n_stop; k++)
            stopped |= stop[k] == i;
        for (int k = 0; !stopped && k < w->node[i].n_args; k++)
            out[w->node[i].arg[k]] = true;
    }
}

bool ir_depends_on(const struct ir *ir, int root, enum ir_op leaf_op, int index)
{
    bool used[IR_MAX_NODES]; /* no memory to run out of: the answer is a mistake of the spec, or none */
    ir_mark(ir, &root, 1, used);
    bool found = false;
    for (int i = 0; i <= root && !found; i++)
        found = used[i] && ir->node[i].op == leaf_op && (index < 0 || ir->node[i].index == index);
    return found;
}

static int rebuild(struct ir *ir, int node, const int *map)
{
    struct ir_node n = ir->node[node];
    int arg[IR_MAX_ARGS] = {0};
    bool changed = false;
    for (int i = 0; i < n.n_args; i++) {
        arg[i] = map[n.arg[i]];
        changed |= arg[i] != n.arg[i];
    }
    return changed ? ir_again(ir, &n, arg) : node;
}

int ir_substitute(struct ir *ir, int root, const int *from, const int *to, int n)
{
    int count = root + 1; /* nodes made here stand after the root */
    int *map = malloc((size_t)count * sizeof *map);
    bool *used = malloc((size_t)ir->n_nodes * sizeof *used);
    if (!map || !used) {
        free(map);
        free(used);
        ir->failed = true;
        return root;
    }
    ir_mark(ir, &root, 1, used);
    for (int i = 0; i < count; i++) {
        map[i] = used[i] ? rebuild(ir, i, map) : i;
        for (int k = 0; k < n; k++)
            if (from[k] == i)
                map[i] = to[k];
    }
    int result = map[root];
    free(map);
    free(used);
    return result;
}

struct ir *ir_clone(const struct ir *ir)
{
    struct ir *copy = malloc(sizeof *copy);
    if (!copy)
        return NULL;
    *copy = *ir;
    copy->maps.gradient = NULL;
    size_t node_bytes = (size_t)ir->capacity * sizeof *ir->node;
    size_t table_bytes = (size_t)ir->table_size * sizeof *ir->table;
    copy->node = malloc(node_bytes);
    copy->table = malloc(table_bytes);
    if (!copy->node || !copy->table) {
        ir_free(copy);
        return NULL;
    }
    memcpy(copy->node, ir->node, (size_t)ir->n_nodes * sizeof *ir->node);
    memcpy(copy->table, ir->table, table_bytes);
    return copy;
}
