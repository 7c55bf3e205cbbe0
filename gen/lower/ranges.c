/*
 * ranges.c: what a value may be, whatever the data. In: a lowered graph. Out: an interval per node; infinite
 * where nothing is known. A reduction over the row has the range of its operand, rows without live pairs
 * apart.
 */
#include "gen/lower/ranges.h"
#include "gen/ir/spec.h"

#include <math.h>

static const struct range ANY = {-HUGE_VAL, HUGE_VAL};

static double product(double a, double b)
{
    return a == 0 || b == 0 ? 0 : a * b;
}

static struct range times(struct range a, struct range b)
{
    double p[4] = {product(a.low, b.low), product(a.low, b.high), product(a.high, b.low),
                   product(a.high, b.high)};
    return (struct range){fmin(fmin(p[0], p[1]), fmin(p[2], p[3])), fmax(fmax(p[0], p[1]), fmax(p[2], p[3]))};
}

static struct range hull(struct range a, struct range b)
{
    return (struct range){fmin(a.low, b.low), fmax(a.high, b.high)};
}

static struct range magnitude(struct range a)
{
    double high = fmax(fabs(a.low), fabs(a.high));
    bool both_signs = a.low < 0 && a.high > 0;
    return (struct range){both_signs ? 0 : fmin(fabs(a.low), fabs(a.high)), high};
}

static struct range node_range(const struct ir_node *n, const struct range *all)
{
    struct range a = n->n_args > 0 ? all[n->arg[0]] : ANY;
    struct range b = n->n_args > 1 ? all[n->arg[1]] : ANY;
    struct range c = n->n_args > 2 ? all[n->arg[2]] : ANY;
    switch ((enum ir_op)n->op) {
    case OP_CONST:
        return isnan(n->value) ? ANY : (struct range){n->value, n->value};
    case OP_ADD:
        return (struct range){a.low + b.low, a.high + b.high};
    case OP_SUB:
        return (struct range){a.low - b.high, a.high - b.low};
    case OP_NEG:
        return (struct range){-a.high, -a.low};
    case OP_MUL:
        return times(a, b);
    case OP_DIV:
        if (b.low <= 0 && b.high >= 0)
            return ANY;
        return times(a, (struct range){1 / b.high, 1 / b.low});
    case OP_EXP:
        return (struct range){exp(a.low), exp(a.high)};
    case OP_EXP2:
        return (struct range){exp2(a.low), exp2(a.high)};
    case OP_TANH:
    case OP_ERF:
    case OP_SIN:
    case OP_COS:
        return (struct range){-1, 1};
    case OP_SIGMOID:
    case OP_NORMAL:
        return (struct range){0, 1};
    case OP_RELU:
        return (struct range){fmax(a.low, 0), fmax(a.high, 0)};
    case OP_ABS:
        return magnitude(a);
    case OP_MIN:
        return (struct range){fmin(a.low, b.low), fmin(a.high, b.high)};
    case OP_MAX:
        return (struct range){fmax(a.low, b.low), fmax(a.high, b.high)};
    case OP_CLAMP:
        return (struct range){fmin(fmax(a.low, b.low), c.low), fmin(fmax(a.high, b.high), c.high)};
    case OP_WHERE:
        return hull(b, c);
    case OP_RANDOM:
        return (struct range){0, 1};
    case OP_F32:
    case OP_ROWMAX:
    case OP_ROWMIN:
        return a;
    default:
        return ANY;
    }
}

void ranges_of_all(const struct ir *w, int root, struct range *out)
{
    for (int i = 0; i <= root; i++) {
        struct range r = node_range(&w->node[i], out);
        const bool wraps = w->node[i].type == TYPE_I32 && !(r.low >= INT32_MIN && r.high <= INT32_MAX);
        out[i] = r.low <= r.high && !wraps ? r : ANY; /* inf - inf */
    }
}
