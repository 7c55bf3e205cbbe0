/*
 * terms.c: values as sums of products, so that two formulas can be compared. In: a lowered graph. Out: per
 * node the terms c * a * b * c' of which it is the sum; whatever is no sum or product is an atom.
 *
 * Where a table is full, the node itself becomes an atom: a comparison may then miss that two values are
 * equal, but never finds that different ones are.
 */
#include "gen/lower/laws.h"
#include "gen/lower/terms.h"
#include "gen/ir/spec.h"

#include <math.h>
#include <string.h>

// Arrays are of all nodes of the pool; the analyzer takes an allocation that failed, and was looked at, for a
// node. NOLINTBEGIN(clang-analyzer-core.NullDereference)

static void atom(int node, struct terms *out)
{
    out->n = 1;
    out->term[0] = (struct term){.by = 1, .n = 1, .atom = {node}};
}

static void constant(double value, struct terms *out)
{
    out->n = value != 0;
    out->term[0] = (struct term){.by = value};
}

static bool same_product(const struct term *a, const struct term *b)
{
    return a->n == b->n && memcmp(a->atom, b->atom, (size_t)a->n * sizeof *a->atom) == 0;
}

static bool add_term(struct terms *to, const struct term *t)
{
    for (int i = 0; i < to->n; i++) {
        struct term *old = &to->term[i];
        if (!same_product(old, t))
            continue;
        double size = fabs(old->by) + fabs(t->by);
        old->by += t->by;
        if (fabs(old->by) <= size * 1e-12)
            to->term[i] = to->term[--to->n];
        return true;
    }
    if (to->n == TERMS_MAX)
        return false;
    to->term[to->n++] = *t;
    return true;
}

bool terms_add(struct terms *to, const struct terms *from, double by)
{
    for (int i = 0; i < from->n; i++) {
        struct term t = from->term[i];
        t.by *= by;
        if (!add_term(to, &t))
            return false;
    }
    return true;
}

static bool multiply(const struct term *a, const struct term *b, struct term *out)
{
    int i = 0;
    int k = 0;
    out->by = a->by * b->by;
    out->n = a->n + b->n;
    if (out->n > TERM_ATOMS)
        return false;
    for (int j = 0; j < out->n; j++) { /* both are sorted */
        bool left = k >= b->n || (i < a->n && a->atom[i] <= b->atom[k]);
        out->atom[j] = left ? a->atom[i++] : b->atom[k++];
    }
    return true;
}

bool terms_multiply(const struct terms *a, const struct terms *b, struct terms *out)
{
    struct term t;
    out->n = 0;
    for (int i = 0; i < a->n; i++)
        for (int k = 0; k < b->n; k++)
            if (!multiply(&a->term[i], &b->term[k], &t) || !add_term(out, &t))
                return false;
    return true;
}

/* False: an atom. */
static bool node_terms(const struct ir *w, int node, const struct shift *law, const struct terms *all,
                       struct terms *out)
{
    const struct ir_node *n = &w->node[node];
    const struct terms *a = n->n_args > 0 ? &all[n->arg[0]] : NULL;
    const struct terms *b = n->n_args > 1 ? &all[n->arg[1]] : NULL;
    const struct ir_node *divisor = n->op == OP_DIV ? &w->node[n->arg[1]] : NULL;
    int truth = n->op == OP_WHERE ? law[n->arg[0]].truth : 0;
    out->n = 0;
    switch ((enum ir_op)n->op) {
    case OP_CONST:
        constant(n->value, out);
        return isfinite(n->value);
    case OP_ADD:
        return n->type == TYPE_F32 && terms_add(out, a, 1) && terms_add(out, b, 1);
    case OP_SUB:
        return n->type == TYPE_F32 && terms_add(out, a, 1) && terms_add(out, b, -1);
    case OP_NEG:
        return n->type == TYPE_F32 && terms_add(out, a, -1);
    case OP_MUL:
        return n->type == TYPE_F32 && terms_multiply(a, b, out);
    case OP_DIV:
        return divisor->op == OP_CONST && divisor->value != 0 && terms_add(out, a, 1 / divisor->value);
    case OP_WHERE:
        return truth != 0 && terms_add(out, truth > 0 ? b : &all[n->arg[2]], 1);
    default:
        return false;
    }
}

void terms_of_all(const struct ir *w, int root, int whole, const struct shift *law, struct terms *out)
{
    for (int i = 0; i <= root; i++)
        if (i == whole || !node_terms(w, i, law, out, &out[i]))
            atom(i, &out[i]);
}
// NOLINTEND(clang-analyzer-core.NullDereference)
