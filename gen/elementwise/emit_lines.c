/*
 * emit_lines.c: inputs that a map reads along its last dim, so that the elements of a vector's lanes lie
 * side by side. In: a map and its classes. Out: members of its struct in the variant.
 *
 * What differs from step to step, and is found without operands, is loaded with the operands of the step
 * ("early"): of several steps all at once, with no store between.
 */
#include "gen/elementwise/emit.h"
#include "runtime/recipe/bind.h"
#include "gen/base/text.h"

/* Is this marked node a read of a line, of this class? */
static bool reads_line(const struct map_emitter *me, int node, enum value_class class)
{
    const struct ir_node *n = &me->e->w->node[node];
    return me->e->mark[node] && n->op == OP_LOAD && me->e->class_of[node] == class &&
           is_map_line(me, n->index, n->arg);
}

static bool is_early(const struct map_emitter *me, int node)
{
    const struct ir_node *n = &me->e->w->node[node];
    bool early = me->loop >= 0 && me->loop < me->last && !me->flat && me->e->class_of[node] == CLASS_ELEMENT;
    for (int d = 0; d + 1 < n->n_args; d++)
        early &= !ir_depends_on(me->e->w, n->arg[d], OP_PARAM, -1);
    return early;
}

static const char *line_type(const struct map_emitter *me, int input)
{
    const int arg = lathe__arg_find(me->e->sig, me->e->w->input[input].name, 0);
    return element_type((lathe_dtype)me->e->problem->arg_dtype[arg]);
}

/* x.in_table + the line's place; its indices have names. */
static void line_text(struct map_emitter *me, const struct ir_node *n)
{
    struct emitter *e = me->e;
    const char *name = e->w->input[n->index].name;
    text_add(e->out, "x.in_%s", name);
    for (int d = 0; d + 1 < n->n_args; d++) {
        char index[128];
        char bound[64];
        input_size_text(e, n->index, d, bound, sizeof bound);
        text_add(e->out, " + (long long)m_clamp_index(%s, %s) * x.s%d_%s",
                 node_text(e, n->arg[d], index, sizeof index), bound, d, name);
    }
}

/* u<node>[k]. The scope has what is known before the lanes. */
void emit_map_lines(struct map_emitter *me, enum value_class class, const int *root, int n_roots)
{
    struct emitter *e = me->e;
    ir_mark(e->w, root, n_roots, e->mark);
    for (int i = 0; i < e->w->n_nodes; i++) {
        const struct ir_node *n = &e->w->node[i];
        if (!reads_line(me, i, class) || is_early(me, i))
            continue;
        const char *name = e->w->input[n->index].name;
        text_add(e->out, "        %s u%d[W];\n        m_load_columns<W>(", c_type(n->type), i);
        line_text(me, n);
        text_add(e->out, ", x.s%d_%s, static_cast<int>(at.first), x.n%d_%s, u%d);\n", n->n_args - 1, name,
                 n->n_args - 1, name, i);
    }
}

void name_map_lines(struct map_emitter *me, enum value_class class, const int *root, int n_roots)
{
    struct emitter *e = me->e;
    ir_mark(e->w, root, n_roots, e->mark);
    for (int i = 0; i < e->w->n_nodes; i++) {
        if (!reads_line(me, i, class))
            continue;
        if (is_early(me, i))
            scope_set(e, i, "element_of<W, %s>(m.u%d, k)", line_type(me, e->w->node[i].index), i);
        else
            scope_set(e, i, "u%d[k]", i);
    }
}

/* ---- with the operands of a step ----------------------------------------------------------------- */

static void each_early(struct map_emitter *me, void (*f)(struct map_emitter *me, int node))
{
    struct emitter *e = me->e;
    for (int i = 0; i < e->w->n_nodes; i++) {
        ir_mark(e->w, me->root, me->n_roots, e->mark); /* f marks, too */
        if (reads_line(me, i, CLASS_ELEMENT) && is_early(me, i))
            f(me, i);
    }
}

static void question(struct map_emitter *me, int node)
{
    const struct ir_node *n = &me->e->w->node[node];
    const char *name = me->e->w->input[n->index].name;
    text_add(me->e->out, " &&\n               has_lines<V>(p.x.in_%s, 0ll", name);
    for (int d = 0; d + 1 < n->n_args; d++)
        text_add(me->e->out, " | p.x.s%d_%s", d, name);
    text_add(me->e->out, ", p.x.s%d_%s)", n->n_args - 1, name);
}

static void member(struct map_emitter *me, int node)
{
    const int input = me->e->w->node[node].index;
    text_add(me->e->out, "        bytes_of<W, %s> u%d; // %s\n", line_type(me, input), node,
             me->e->w->input[input].name);
}

static void load(struct map_emitter *me, int node)
{
    struct emitter *e = me->e;
    const struct ir_node *n = &e->w->node[node];
    const char *name = e->w->input[n->index].name;
    emit_values(e, n->arg, n->n_args - 1);
    text_add(e->out, "        m.u%d = load_lanes<W, SHARED>(", node);
    line_text(me, n);
    text_add(e->out, " + m_clamp_index(static_cast<int>(at.first), x.n%d_%s) * x.s%d_%s);\n", n->n_args - 1,
             name, n->n_args - 1, name);
}

static void any_early(struct map_emitter *me, int node)
{
    (void)node;
    me->early = true;
}

void emit_early_questions(struct map_emitter *me)
{
    each_early(me, question);
}

void emit_early_members(struct map_emitter *me)
{
    each_early(me, member);
}

void emit_early_loads(struct map_emitter *me)
{
    me->early = false;
    each_early(me, any_early);
    if (!me->early)
        return;
    text_add(me->e->out,
             "        [[maybe_unused]] const inputs &x = p.x;\n        [[maybe_unused]] const map_sizes &z = "
             "sizes(p);\n        point at = from;\n        at.at[%d] += u;\n",
             me->loop);
    name_leaves(me);
    fields_name(me->e, &me->head);
    each_early(me, load);
}
