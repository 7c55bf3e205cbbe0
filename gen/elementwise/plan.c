/*
 * plan.c: how the kernels of elementwise go through their maps. In: a request. Out: its part of struct
 * plan: the dim that a thread goes along, how many of its steps are loaded together, and how many blocks
 * there are.
 */
#include "gen/arguments/problem.h"
#include "gen/elementwise/planner.h"
#include "gen/ir/spec.h"
#include "gen/plan/plan.h"

#include <stdio.h>
#include <string.h>

static int op_cost(const struct ir_node *n)
{
    switch ((enum ir_op)n->op) {
    case OP_POW:
        return 40;
    case OP_SIN:
    case OP_COS:
    case OP_ERF:
    case OP_NORMAL:
    case OP_GELU:
        return 10;
    case OP_LOAD:
    case OP_DIV:
    case OP_EXP:
    case OP_EXP2:
    case OP_LOG:
    case OP_LOG2:
    case OP_RSQRT:
    case OP_SIGMOID:
    case OP_SILU:
    case OP_SQRT:
    case OP_TANH:
        return 5;
    default:
        return n->op > OP_LOAD;
    }
}

/* What a thread saves at each step along dim k: values that do not vary with it, but for those that never
 * vary. */
static int loop_gain(const struct ir *ir, const struct ir_map *map, int k, const bool *used)
{
    int gain = 0;
    for (int i = 0; i < ir->n_nodes; i++)
        if (used[i] && ir->node[i].span != 0 && !(ir->node[i].span >> k & 1))
            gain += op_cost(&ir->node[i]);
    for (int i = 0; i < ir->maps.n_tensors; i++) {
        const struct map_tensor *t = &ir->maps.tensor[i];
        const bool has = memchr(t->dim, k, (size_t)t->n_dims) != NULL;
        if (map != &ir->maps.map[t->map] || has || t->use == USE_STORE || t->use == USE_SCATTER)
            continue;
        gain += t->use == USE_SUM ? 1000 : 5; /* a sum in registers; an operand that is read once */
    }
    return gain;
}

static unsigned span_of_tensor(const struct map_tensor *t)
{
    unsigned span = 0;
    for (int d = 0; d < t->n_dims; d++)
        span |= 1u << t->dim[d];
    return span;
}

/* Can a thread carry what it adds up along the loop through dim k, too? 1: it saves parts; 0: it is no use;
   -1: something that is added up along the loop alone would have to be left at every turn. */
static int outer_use(const struct ir_map *map, int loop, int k, unsigned span)
{
    if (span >> loop & 1)
        return 0; /* left at every step */
    if (span >> k & 1)
        return -1;
    return span >> (map->n_over - 1) & 1 ? 1 : 0;
}

/* The dim around the loop: the innermost one along which sums, and gradients of inputs read at the same
 * place, are carried on. */
static int choose_outer(const struct ir *ir, int m, int loop)
{
    const struct ir_map *map = &ir->maps.map[m];
    for (int k = map->n_over - 2; k >= 0 && loop >= 0; k--) {
        int uses = 0;
        bool left = false;
        for (int i = 0; i < ir->maps.n_tensors && k != loop; i++) {
            const struct map_tensor *t = &ir->maps.tensor[i];
            const int use = t->map == m && t->use == USE_SUM ? outer_use(map, loop, k, span_of_tensor(t)) : 0;
            uses += use > 0;
            left |= use < 0;
        }
        for (int s = 0; s < map->n_scatters && k != loop; s++) {
            const struct map_scatter *to = &map->scatter[s];
            unsigned span = 0;
            for (int d = 0; d < ir->input[ir->maps.tensor[to->tensor].input].n_dims; d++)
                span |= ir->node[to->index[d]].span;
            uses += outer_use(map, loop, k, span) > 0;
        }
        if (uses > 0 && !left)
            return k;
    }
    return -1;
}

/* The dim that a thread goes along: where it saves most, else the innermost but the last. */
static void choose_loop(const struct ir *ir, int m, struct plan *plan)
{
    const struct ir_map *map = &ir->maps.map[m];
    int best = 0;
    bool used[IR_MAX_NODES]; /* no memory to run out of: it would be another shape */
    ir_mark(ir, map->fn.root, map->fn.n_roots, used);
    plan->maps.loop[m] = map->n_over - 2;
    for (int k = map->n_over - 2; k >= 0; k--) {
        const int gain = loop_gain(ir, map, k, used);
        if (gain <= best)
            continue;
        best = gain;
        plan->maps.loop[m] = k;
    }
    plan->maps.long_loops |= best >= 8;
    plan->maps.outer[m] = choose_outer(ir, m, plan->maps.loop[m]);
}

static bool is_read(const struct ir *ir, int tensor)
{
    const struct ir_map *map = &ir->maps.map[ir->maps.tensor[tensor].map];
    bool read = false;
    for (int r = 0; r < map->fn.n_roots; r++)
        for (int half = 0; half < 2; half++)
            read |= ir_depends_on(ir, map->fn.root[r], OP_PARAM, LEAF_TENSOR + 2 * tensor + half);
    return read;
}

/* What decides how a pass goes through memory. */
struct flow {
    int bytes; /* of a point's operands, and the smallest and the largest element */
    int smallest;
    int largest;
    int operands;
    int cost; /* of what is computed for a point */
    bool sums;
    bool stepwise; /* a sum over the last dim alone: left at every step */
    bool scatters;
    bool lists;
    bool pairs;   /* side by side: 16 bytes are 4 of them */
    bool chained; /* lines of inputs at places that are read, and no operands */
    bool lines;   /* bytes are those of lines of inputs, for want of operands */
};

/* Where a map has no operands: the inputs that it reads along its last dim. */
static void line_bytes(const struct kernel_request *r, const struct ir *ir, const struct signature *sig,
                       struct flow *f)
{
    for (int i = 0; i < ir->n_nodes; i++) {
        const struct ir_node *n = &ir->node[i];
        if (n->op != OP_LOAD || n->n_args == 0)
            continue;
        const struct ir_node *last = &ir->node[n->arg[n->n_args - 1]];
        const int arg = lathe__arg_find(sig, ir->input[n->index].name, 0);
        const int of_map = last->op == OP_AT && last->index >= AT_INDEX0 ? last->index - AT_INDEX0 + 1 : 0;
        if (arg < 0 || ir->maps.n_maps != 1 || of_map != ir->maps.map[0].n_over ||
            ir->input[n->index].dim[n->n_args - 1].literal > 0)
            continue;
        const int size = (int)lathe_dtype_size((lathe_dtype)r->problem->arg_dtype[arg]);
        f->bytes += size;
        f->lines = true;
        f->smallest = size < f->smallest ? size : f->smallest;
        for (int d = 0; d + 1 < n->n_args; d++)
            f->chained |= ir_depends_on(ir, n->arg[d], OP_LOAD, -1);
    }
}

/* Bytes of a point's operands and the smallest element, of all maps the largest and the smallest. */
static void point_bytes(const struct kernel_request *r, const struct ir *ir, const struct signature *sig,
                        struct flow *f)
{
    int *const bytes = &f->bytes;
    int *const smallest = &f->smallest;
    int of_map[MAX_MAPS] = {0};
    *smallest = 4;
    *bytes = 0;
    for (int i = 0; i < ir->maps.n_tensors; i++) {
        const struct map_tensor *t = &ir->maps.tensor[i];
        const int arg = lathe__arg_find(sig, t->name, 0);
        const int size = arg < 0 ? 4 : (int)lathe_dtype_size((lathe_dtype)r->problem->arg_dtype[arg]);
        if (t->use == USE_SUM || t->use == USE_SCATTER)
            continue;
        *smallest = size < *smallest ? size : *smallest;
        f->largest = size > f->largest ? size : f->largest;
        if (t->use == USE_READ && t->n_dims == ir->maps.map[t->map].n_over && is_read(ir, i))
            of_map[t->map] += size * (t->form == STAGE_ELEMENT ? 1 : 2);
        *bytes = of_map[t->map] > *bytes ? of_map[t->map] : *bytes;
    }
    if (*bytes == 0)
        line_bytes(r, ir, sig, f);
}

static void flow_of(const struct kernel_request *r, const struct ir *ir, const struct plan *plan,
                    struct flow *f)
{
    *f = (struct flow){0};
    point_bytes(r, ir, r->sig, f);
    for (int i = 0; i < ir->maps.n_tensors; i++) {
        const struct map_tensor *t = &ir->maps.tensor[i];
        const int loop = plan->maps.loop[t->map];
        f->sums |= t->use == USE_SUM;
        f->stepwise |= t->use == USE_SUM && loop >= 0 && (span_of_tensor(t) >> loop & 1) != 0;
        f->scatters |= t->use == USE_SCATTER;
        f->pairs |= t->form == STAGE_INTERLEAVED;
        f->operands += t->use == USE_READ;
    }
    for (int m = 0; m < ir->maps.n_maps; m++)
        f->lists |= ir->maps.map[m].list;
    for (int i = 0; i < ir->n_nodes; i++)
        f->cost += ir->node[i].span != 0 ? op_cost(&ir->node[i]) : 0;
}

/* A line of points whose formula is a long one (a search in a table, say): a point a thread. All points of a
 * vector would be as many copies of the formula, each of them to be compiled. */
static bool is_long(const struct ir *ir, const struct flow *f)
{
    enum { LONG = 128 };
    return ir->maps.n_maps == 1 && ir->maps.map[0].n_over == 1 && !ir->maps.map[0].list && f->cost > LONG;
}

/* Bytes that a thread asks for before it waits. */
static int steps_together(int bytes, int vector)
{
    enum { IN_FLIGHT = 96 };
    const int steps = IN_FLIGHT / (bytes * vector);
    return steps > 4 ? 4 : steps < 1 ? 1 : steps == 3 ? 2 : steps;
}

/* Lists: a tile begins with a chain of reads (lengths, pointers, elements), so a step at a time, and as many
   threads as possible at different places of it; blocks that the device holds take tiles in turn. Where
   tensors are of 32 bits, beside others of 16 or not, a tile has half as many steps, and none is asked for
   ahead (1 to 1.5 %). */
static void flow_lists(struct plan *plan, const struct flow *f, int sm_count)
{
    const bool wide = f->largest == 4;
    plan->maps.ahead = !wide;
    plan->maps.threads = 128;
    plan->maps.unroll = 1;
    plan->maps.steps = wide ? 2 : 4; /* of a tile: its pointers are read once */
    plan->maps.min_blocks = f->bytes * plan->maps.vector > 72 ? 5 : f->operands > 3 && !wide ? 6 : 8;
    plan->maps.blocks = 16 * sm_count;
}

/* Sums that a thread carries along its loops: what it keeps per point takes registers, so points are few and
   threads many; as many as the device holds at once, since what each of them has at the end is left in
   memory. Where a sum is left at every step, what that takes is shared by more points, and the next step is
   loaded meanwhile. */
static void flow_sums(struct plan *plan, const struct flow *f, int sm_count)
{
    plan->maps.ahead = true;
    plan->maps.threads = 128;
    plan->maps.vector = f->stepwise || f->chained ? plan->maps.vector : 4;
    plan->maps.unroll = f->stepwise ? 1 : f->bytes == 0 ? 2 : steps_together(f->bytes, plan->maps.vector);
    plan->maps.min_blocks = 5;
    plan->maps.blocks = 2 * plan->maps.min_blocks * sm_count;
}

/* Maps of which every point reads and writes its own elements and nothing else, on the H200: where hardly
   anything is computed nothing beats blocks of 128 threads with a vector of every tensor each (two vectors:
   0.6 to 0.8 % less), else two vectors share what a thread begins with (silu 7 %, gelu's gradient 10 %). As
   many blocks as tiles, because what starts late fills gaps: blocks that take tiles in turn have 2 to 6 %
   less. Three operands are enough loads at once: the
   two vectors one after the other. Lines at computed places are two reads one after the other: those of
   several steps at once. */
static void flow_lean(struct plan *plan, const struct flow *f)
{
    plan->maps.unroll = f->bytes == 0 || f->cost < 5 || plan->maps.unroll < 2 ? 1 : 2;
    plan->maps.threads = 128;
    plan->maps.min_blocks = 8;
    plan->maps.steps = plan->maps.unroll;
    if (f->operands > 2)
        plan->maps.unroll = 1;
    if (f->chained) {
        plan->maps.unroll = 2;
        plan->maps.steps = 8;
        plan->maps.ahead = true;
    }
}

static void choose_flow(struct plan *plan, const struct ir *ir, const struct flow *f, int sm_count)
{
    enum {
        PART_STEPS = 16 /* at least, of a part of a sum */,
        MOST_LINES = 16 /* bytes of a point, for 8 points */
    };
    const bool adds = f->sums || f->scatters;
    const bool lean = !adds && !f->lists && !plan->maps.long_loops && ir->maps.n_maps == 1;
    plan->maps.threads = 256;
    plan->maps.vector = f->smallest == 4 || f->pairs || (f->lines && f->bytes > MOST_LINES) ? 4 : 8;
    plan->maps.unroll = f->bytes == 0 ? 2 : steps_together(f->bytes, plan->maps.vector);
    plan->maps.min_blocks = plan->maps.long_loops || f->sums || f->bytes * plan->maps.vector > 72 ? 2 : 3;
    plan->maps.blocks = 8 * sm_count;
    if (plan->maps.long_loops && !adds && f->operands == 1 && f->bytes * plan->maps.vector <= 16) {
        plan->maps.threads = 128; /* 4 steps at a time, and still 5 blocks an SM */
        plan->maps.min_blocks = 5;
    }
    if (adds && plan->maps.long_loops)
        flow_sums(plan, f, sm_count);
    plan->maps.steps = f->sums ? PART_STEPS : plan->maps.unroll;
    plan->maps.turns = 8; /* bounds the parts of a sum */
    if (f->lists)
        flow_lists(plan, f, sm_count);
    if (lean)
        flow_lean(plan, f);
    if (is_long(ir, f))
        plan->maps.vector = plan->maps.unroll = plan->maps.steps = 1;
    /* Blocks that take tiles in turn are in several parts of memory at a time: where a thread goes through
       one that is far away at every step, the H200 gains 4 % by that, and loses a quarter with a block a
       tile. */
    plan->maps.most_blocks = lean ? 1 << 30 : (adds ? 16 : 48) * sm_count * 256 / plan->maps.threads;
}

static void shape(const struct kernel_request *r, const struct ir *ir, struct plan *plan)
{
    struct flow f;
    for (int m = 0; m < ir->maps.n_maps; m++)
        choose_loop(ir, m, plan);
    flow_of(r, ir, plan, &f);
    choose_flow(plan, ir, &f, r->device->sm_count);
    snprintf(
        plan->reason, sizeof plan->reason,
        "%d points of the last dim a thread, %d steps loaded together%s; at most %d blocks of %d threads",
        plan->maps.vector, plan->maps.unroll,
        plan->maps.long_loops ? ", loops as long as the device stays busy" : "", plan->maps.most_blocks,
        plan->maps.threads);
}

static bool plan_maps(const struct kernel_request *r, const struct ir *ir, struct plan *plan, char *why)
{
    for (size_t i = 0; i < MAX_ARGS; i++)
        if (r->problem->arg_dtype[i] == LATHE_F64) {
            snprintf(why, REASON_BYTES, "dtype f64; it takes f32, f16 and bf16");
            return false;
        }
    if (r->refused[0])
        snprintf(why, REASON_BYTES, "%s", r->refused);
    else
        shape(r, ir, plan);
    return !r->refused[0];
}

/* ---- one gradient of rows at computed places ------------------------------------------------------ */

/* The only result that is wanted, if it is a gradient that is added up at computed places; else -1. */
static int only_scatter(const struct kernel_request *r, const struct ir *ir)
{
    int only = -1;
    int wanted = 0;
    for (int i = 0; i < ir->maps.n_tensors; i++) {
        const struct map_tensor *t = &ir->maps.tensor[i];
        const int arg = lathe__arg_find(r->sig, t->name, 0);
        if (t->use == USE_READ || t->use == USE_NONE || !problem_has(r->problem, arg))
            continue;
        wanted++;
        only = t->use == USE_SCATTER ? i : -1;
    }
    return wanted == 1 ? only : -1;
}

/* Its last index is the last dim of the map, as long as it; some other is read from memory, and none is an
 * operand or varies along the last dim. */
static bool is_of_rows(const struct ir *ir, const struct map_scatter *to)
{
    const struct ir_map *map = &ir->maps.map[0];
    const struct input *in = &ir->input[ir->maps.tensor[to->tensor].input];
    const int last = in->n_dims - 1;
    const int over = map->n_over - 1;
    bool loads = false;
    if (last < 1 || over < 1 || in->dim[last].literal > 0 || in->dim[last].sym != map->over[over])
        return false;
    for (int d = 0; d < last; d++) {
        const int root = to->index[d];
        if (ir->node[root].span >> over & 1)
            return false;
        loads |= ir_depends_on(ir, root, OP_LOAD, -1);
        if (ir_depends_on(ir, root, OP_PARAM, -1))
            return false;
    }
    const struct ir_node *along = &ir->node[to->index[last]];
    return loads && along->op == OP_AT && along->index == AT_INDEX0 + over;
}

static const struct map_scatter *gathered(const struct kernel_request *r, const struct ir *ir, char *why)
{
    const struct map_scatter *found = NULL;
    const int only = only_scatter(r, ir);
    snprintf(why, REASON_BYTES,
             "it takes one gradient of an input whose rows are read at places that data says, and no other "
             "result");
    if (ir->maps.n_maps != 1 || ir->maps.map[0].list || only < 0)
        return NULL;
    for (int s = 0; s < ir->maps.map[0].n_scatters; s++) {
        if (ir->maps.map[0].scatter[s].tensor != only)
            continue;
        if (found)
            return NULL;
        found = &ir->maps.map[0].scatter[s];
    }
    return found && is_of_rows(ir, found) ? found : NULL;
}

bool plan_elementwise_gather(const struct kernel_request *r, struct plan *plan, char *why)
{
    const struct ir *ir = r->ir->maps.gradient;
    const struct map_scatter *to = ir ? gathered(r, ir, why) : NULL;
    if (r->problem->deterministic)
        snprintf(why, REASON_BYTES, "lines of points come in any order; it takes no deterministic=1");
    else if (!ir)
        snprintf(why, REASON_BYTES,
                 "lists of tensors, integer results and results with a slot have no backward pass");
    if (r->problem->deterministic || !to || !plan_maps(r, ir, plan, why))
        return false;
    const int arg = lathe__arg_find(r->sig, ir->maps.tensor[to->tensor].name, 0);
    const bool wide = r->problem->arg_dtype[arg] == LATHE_F32;
    plan->maps.gather = true;
    plan->maps.threads = 256;
    plan->maps.vector = wide || plan->maps.vector < 4 ? 4 : plan->maps.vector;
    plan->maps.unroll = plan->maps.steps = 4;
    plan->maps.min_blocks = 3;
    /* A block a tile is a tenth slower. Values that are made of further reads: fewer, each with more rows. */
    plan->maps.most_blocks = (ir_depends_on(ir, to->value, OP_LOAD, -1) ? 32 : 48) * r->device->sm_count;
    plan->maps.blocks = 2 * r->device->sm_count;
    snprintf(plan->reason, sizeof plan->reason,
             "lines of points sorted by the row that they belong to; a row is added up in registers, %d "
             "elements a thread, and written once",
             plan->maps.vector);
    return true;
}

/* Sums over points are cut into as many parts as there are points for: a result that is none has the same
   bits in every batch. */
static bool is_of_any_batch(const struct kernel_request *r, const struct ir *ir, char *why)
{
    const struct map_tensor *sum = NULL;
    for (int i = 0; i < ir->maps.n_tensors && r->problem->deterministic == DETERMINISTIC_BATCH; i++)
        if (ir->maps.tensor[i].use == USE_SUM || ir->maps.tensor[i].use == USE_SCATTER)
            sum = &ir->maps.tensor[i];
    if (sum)
        snprintf(why, REASON_BYTES,
                 "deterministic=batch is asked for, and '%s' is a sum over points, which is cut by how many "
                 "there are; ask for deterministic=1",
                 sum->name);
    return !sum;
}

bool plan_elementwise(const struct kernel_request *r, struct plan *plan, char *why)
{
    return is_of_any_batch(r, r->ir, why) && plan_maps(r, r->ir, plan, why);
}

bool plan_elementwise_bwd(const struct kernel_request *r, struct plan *plan, char *why)
{
    if (r->ir->maps.gradient)
        return is_of_any_batch(r, r->ir->maps.gradient, why) && plan_maps(r, r->ir->maps.gradient, plan, why);
    snprintf(why, REASON_BYTES,
             "lists of tensors, integer results and results with a slot have no backward pass");
    return false;
}
