/*
 * host.c: an elementwise operator on the host, in double precision, a stretch of points along the
 * last dim of a map at a time. In: a bound call. Out: results, written into the arguments. The backward pass
 * is the spec's gradient, run the same way. A stretch is read before it is written, so a result may lie where
 * its alias does. Sums are in double and stored at the end; scratch is freed before the return.
 */
#include "gen/elementwise/columns.h"
#include "gen/elementwise/lists.h"
#include "gen/host/host.h"
#include "gen/ir/tensor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STRETCH = 512 };

struct place {                /* where a tensor's elements lie */
    const lathe_arg *arg;     /* NULL: absent */
    int64_t stride[MAX_OVER]; /* by dim of the map; of a pair's lo */
    int64_t hi;               /* from lo to hi */
    double *sum;              /* SUM, SCATTER: compact, row-major */
    int64_t sum_stride[MAX_OVER];
    int64_t sum_hi;
    int64_t slots, slot_stride; /* of a result with a slot: its first dim */
};

struct elementwise { /* one call */
    const struct host_call *call;
    const struct ir *ir; /* the spec, or its gradient */
    struct eval_env env;
    struct place place[MAX_TENSORS];
    const lathe_arg *lengths; /* of the tensors of a list */
    double index[STRETCH];
    double value[2 * MAX_TENSORS][STRETCH];
    int n_eval[MAX_MAPS];
    int *eval[MAX_MAPS]; /* roots, then values and indices of scatters */
    int64_t entry;       /* of a list */
};

/* ---- tensors ------------------------------------------------------------------------------------- */

static int64_t size_of(const struct elementwise *e, const struct ir_map *map, int k)
{
    return map->list ? 1 : host_dim(e->call, map->over[k]);
}

static void place_strides(struct elementwise *e, int k)
{
    const struct map_tensor *t = &e->ir->maps.tensor[k];
    const struct ir_map *map = &e->ir->maps.map[t->map];
    struct place *p = &e->place[k];
    int64_t compact = 1;
    for (int d = t->n_dims - 1; d >= 0; d--) {
        const int from = d + p->arg->ndim - t->n_dims; /* leading dims may be left out, or be slots */
        const int64_t stride = map->list ? 1 : from >= 0 ? tensor_stride(p->arg, from) : 0;
        const int64_t n = size_of(e, map, t->dim[d]);
        const bool pairs = t->form != STAGE_ELEMENT && d == t->n_dims - 1;
        const bool next = pairs && t->form == STAGE_INTERLEAVED;
        p->stride[t->dim[d]] = next ? 2 * stride : stride;
        p->sum_stride[t->dim[d]] = next ? 2 * compact : compact;
        p->hi = pairs ? (next ? stride : n * stride) : p->hi;
        p->sum_hi = pairs ? (next ? 1 : n) : p->sum_hi;
        compact *= pairs ? 2 * n : n;
    }
    p->slots = t->slot ? p->arg->shape[0] : 0;
    p->slot_stride = t->slot ? tensor_stride(p->arg, 0) : 0;
}

static lathe_status open_tensors(struct elementwise *e, lathe_error *err)
{
    for (int k = 0; k < e->ir->maps.n_tensors; k++) {
        const struct map_tensor *t = &e->ir->maps.tensor[k];
        struct place *p = &e->place[k];
        p->arg = host_arg(e->call, t->name);
        if (!p->arg && t->alias >= 0)
            p->arg = host_arg(e->call, e->ir->maps.tensor[t->alias].name);
        if (!p->arg || !p->arg->data) {
            p->arg = NULL;
            continue;
        }
        if (t->use != USE_SCATTER)
            place_strides(e, k);
        if (t->use == USE_SUM || t->use == USE_SCATTER) {
            p->sum = calloc((size_t)tensor_count(p->arg) + 1, sizeof(double));
            if (!p->sum)
                return host_out_of_memory(err);
        }
    }
    return LATHE_OK;
}

/* Every operand and result of a list spec is a list. An operand is written over where its result is left out.
 */
static lathe_status check_tensors(const struct elementwise *e, lathe_error *err)
{
    const struct ir_maps *maps = &e->ir->maps;
    struct tensor_list list[MAX_TENSORS];
    int n = 0;
    for (int k = 0; k < maps->n_tensors; k++) {
        const struct map_tensor *t = &maps->tensor[k];
        const lathe_arg *over = t->alias >= 0 ? e->place[t->alias].arg : NULL;
        if (!e->place[k].arg || e->place[k].arg == over || !maps->map[t->map].list)
            continue;
        list[n] = (struct tensor_list){t->name, e->place[k].arg, over, t->use == USE_STORE};
        for (int i = 0; i < maps->n_tensors; i++)
            list[n].is_written |= maps->tensor[i].alias == k && e->place[i].arg == e->place[k].arg;
        n++;
    }
    return n == 0 ? LATHE_OK
                  : check_tensor_lists(list, n, e->lengths->data, host_dim(e->call, SYM_TENSORS), err);
}

static void store_sums(const struct elementwise *e)
{
    for (int k = 0; k < e->ir->maps.n_tensors; k++) {
        const struct place *p = &e->place[k];
        if (p->sum)
            tensor_set_all(p->arg, p->sum);
    }
}

/* What is evaluated at a point of each map. */
static lathe_status open_maps(struct elementwise *e, lathe_error *err)
{
    for (int m = 0; m < e->ir->maps.n_maps; m++) {
        const struct ir_map *map = &e->ir->maps.map[m];
        int *eval = calloc((size_t)(MAX_ROOTS + map->n_scatters * (1 + INPUT_DIMS)) + 1, sizeof *eval);
        e->eval[m] = eval;
        if (!eval)
            return host_out_of_memory(err);
        int n = map->fn.n_roots;
        memcpy(eval, map->fn.root, (size_t)n * sizeof *eval);
        for (int s = 0; s < map->n_scatters; s++) {
            eval[n++] = map->scatter[s].value;
            for (int d = 0; d < e->ir->input[e->ir->maps.tensor[map->scatter[s].tensor].input].n_dims; d++)
                eval[n++] = map->scatter[s].index[d];
        }
        e->n_eval[m] = n;
    }
    return LATHE_OK;
}

static void close_all(struct elementwise *e)
{
    for (int k = 0; k < e->ir->maps.n_tensors; k++)
        free(e->place[k].sum);
    for (int m = 0; m < e->ir->maps.n_maps; m++)
        free(e->eval[m]);
    eval_free(&e->env);
    free(e);
}

/* ---- a stretch of points ------------------------------------------------------------------------- */

static void *data_of(const struct elementwise *e, const struct ir_map *map, const struct place *p)
{
    return map->list ? ((void *const *)p->arg->data)[e->entry] : p->arg->data;
}

/* Element of the first point. */
static int64_t first_of(const struct ir_map *map, const int64_t *stride, const int64_t *at)
{
    int64_t element = 0;
    for (int k = 0; k < map->n_over; k++)
        element += at[k] * stride[k];
    return element;
}

static void load_stretch(struct elementwise *e, int m, const int64_t *at, int n)
{
    const struct ir_map *map = &e->ir->maps.map[m];
    for (int i = 0; i < 2 * e->ir->maps.n_tensors; i++) {
        const struct map_tensor *t = &e->ir->maps.tensor[i / 2];
        const struct place *p = &e->place[i / 2];
        if (t->map != m || t->use != USE_READ || (i % 2 && t->form == STAGE_ELEMENT))
            continue;
        const int64_t step = p->stride[map->n_over - 1];
        const int64_t first = first_of(map, p->stride, at) + (i % 2 ? p->hi : 0);
        for (int j = 0; j < n; j++)
            e->value[i][j] =
                p->arg ? dtype_load(p->arg->dtype, data_of(e, map, p), first + j * step) : t->default_value;
        e->env.param[LEAF_TENSOR + i] = e->value[i];
    }
}

/* As the kernels draw it: seed, number of the result's value, line of points, point. */
static uint32_t draw(uint32_t seed, uint32_t value, uint32_t line, uint32_t point)
{
    uint32_t x = point * 0x9e3779b1u + seed;
    x = (x ^ (x >> 16)) * 0x85ebca6bu + line;
    x = (x ^ (x >> 13)) * 0xc2b2ae35u + value * 0x27d4eb2fu;
    x = (x ^ (x >> 16)) * 0x7feb352du;
    return x ^ (x >> 15);
}

/* To a neighbour in the dtype, the nearer the likelier: what is cut off, plus as many random bits, carries
 * over. */
static double dither(lathe_dtype dtype, double value, uint32_t bits)
{
    const unsigned cut = dtype == LATHE_BF16 ? 16 : dtype == LATHE_F16 ? 13 : 0;
    float x = (float)value;
    uint32_t word;
    if (cut == 0 || !isfinite(x))
        return value;
    if (dtype == LATHE_F16 && fabsf(x) < 0x1p-14f)
        return copysign(floor(fabs((double)x) * 0x1p24 + (bits & 0x1fffu) * 0x1p-13) * 0x1p-24, (double)x);
    memcpy(&word, &x, sizeof word);
    word = (word + (bits & ((1u << cut) - 1u))) & ~((1u << cut) - 1u);
    memcpy(&x, &word, sizeof x);
    return (double)x;
}

static int32_t seed_of(const struct elementwise *e, int input)
{
    const lathe_arg *t = e->call->input[input];
    return (int32_t)(t ? dtype_load(t->dtype, t->data, 0) : e->ir->input[input].default_value);
}

struct line { /* of points along the last dim */
    int m;
    int64_t number; /* of all lines of its map; the tensor of a list */
    int64_t n;
    int64_t at[MAX_OVER];
};

/* Where the elements of a line go along a result's slots; < 0: nowhere. */
static int64_t slot_of(const struct elementwise *e, const struct map_tensor *t)
{
    return t->slot ? (int64_t)e->value[2 * (t->slot - 1)][0] : 0;
}

static lathe_status check_slots(const struct elementwise *e, const struct line *l, lathe_error *err)
{
    for (int k = 0; k < e->ir->maps.n_tensors; k++) {
        const struct map_tensor *t = &e->ir->maps.tensor[k];
        if (t->map != l->m || !t->slot || !e->place[k].arg || slot_of(e, t) < e->place[k].slots)
            continue;
        return lathe__fail(
            err, LATHE_ARG,
            "argument '%s': expected places below %s=%lld of '%s' (or less than 0: none), given "
            "%lld",
            e->ir->maps.tensor[t->slot - 1].name, e->ir->free_name[t->slots - SYM_FREE],
            (long long)e->place[k].slots, t->name, (long long)slot_of(e, t));
    }
    return LATHE_OK;
}

static void store_value(struct elementwise *e, const struct line *l, const struct map_tensor *t, int tensor,
                        int half, int root, int n)
{
    const struct ir_map *map = &e->ir->maps.map[l->m];
    const struct place *p = &e->place[tensor];
    const int last = map->n_over - 1;
    const int64_t first = first_of(map, p->sum ? p->sum_stride : p->stride, l->at) +
                          (!half    ? 0
                           : p->sum ? p->sum_hi
                                    : p->hi) +
                          slot_of(e, t) * p->slot_stride;
    const int32_t seed = t->dither >= 0 ? seed_of(e, t->dither) : 0;
    for (int j = 0; j < n && p->arg && slot_of(e, t) >= 0; j++) {
        double value = host_value(&e->env, root, j);
        if (p->sum) {
            p->sum[first + j * p->sum_stride[last]] += value;
            continue;
        }
        if (seed)
            value = dither(p->arg->dtype, value,
                           draw((uint32_t)seed, (uint32_t)(2 * tensor + half), (uint32_t)l->number,
                                (uint32_t)(l->at[last] + j)));
        dtype_store(p->arg->dtype, data_of(e, map, p), first + j * p->stride[last], value);
    }
}

static lathe_status scatter(struct elementwise *e, const struct ir_map *map, int n, lathe_error *err)
{
    for (int s = 0; s < map->n_scatters; s++) {
        const struct map_scatter *to = &map->scatter[s];
        const struct place *p = &e->place[to->tensor];
        for (int j = 0; j < n && p->sum; j++) {
            int64_t element = 0;
            for (int d = 0; d < p->arg->ndim; d++) {
                const double index = host_value(&e->env, to->index[d], j);
                if (!(index >= 0 && index < (double)p->arg->shape[d])) {
                    eval_fail_index(&e->env, to->index[d], e->ir->maps.tensor[to->tensor].input, d, index,
                                    p->arg->shape[d]);
                    return host_eval_error(&e->env, err);
                }
                element = element * p->arg->shape[d] + (int64_t)index;
            }
            p->sum[element] += host_value(&e->env, to->value, j);
        }
    }
    return LATHE_OK;
}

static lathe_status run_stretch(struct elementwise *e, const struct line *l, int n, lathe_error *err)
{
    const struct ir_map *map = &e->ir->maps.map[l->m];
    const int last = map->n_over - 1;
    e->env.axis = (uint8_t)(1u << last);
    e->env.n = n;
    for (int k = 0; k < map->n_over; k++) {
        e->env.at[AT_INDEX0 + k] = (double)l->at[k];
        e->env.at[AT_SIZE0 + k] = (double)(k == last ? l->n : size_of(e, map, k));
    }
    for (int j = 0; j < n; j++)
        e->index[j] = (double)(l->at[last] + j);
    e->env.at_axis[AT_INDEX0 + last] = e->index;
    load_stretch(e, l->m, l->at, n);
    TRY(check_slots(e, l, err));
    lathe_status status = host_eval(&e->env, e->eval[l->m], e->n_eval[l->m], err);
    int root = 0;
    for (int k = 0; k < e->ir->maps.n_tensors && status == LATHE_OK; k++) {
        const struct map_tensor *t = &e->ir->maps.tensor[k];
        const bool valued = t->map == l->m && (t->use == USE_STORE || t->use == USE_SUM);
        for (int half = 0; valued && half < (t->form == STAGE_ELEMENT ? 1 : 2); half++)
            store_value(e, l, t, k, half, map->fn.root[root++], n);
    }
    return status == LATHE_OK ? scatter(e, map, n, err) : status;
}

/* ---- lines --------------------------------------------------------------------------------------- */

static int64_t line_count(const struct host_call *call, const struct ir_map *map)
{
    int64_t lines = map->list ? host_dim(call, SYM_TENSORS) : 1;
    for (int k = 0; k + 1 < map->n_over; k++)
        lines *= host_dim(call, map->over[k]);
    return lines;
}

static lathe_status run_line(struct elementwise *e, int m, int64_t number, lathe_error *err)
{
    const struct ir_map *map = &e->ir->maps.map[m];
    const int last = map->n_over - 1;
    struct line l = {.m = m, .number = number};
    int64_t rest = number;
    for (int k = last - 1; k >= 0; k--) {
        l.at[k] = rest % size_of(e, map, k);
        rest /= size_of(e, map, k);
    }
    e->entry = number;
    l.n = map->list ? (int64_t)((const int32_t *)e->lengths->data)[number] : size_of(e, map, last);
    lathe_status status = LATHE_OK;
    for (int64_t i = 0; i < l.n && status == LATHE_OK; i += STRETCH) {
        l.at[last] = i;
        status = run_stretch(e, &l, (int)(l.n - i < STRETCH ? l.n - i : STRETCH), err);
    }
    return status;
}

int64_t host_elementwise_units(const struct host_call *call)
{
    int64_t n = 0;
    for (int m = 0; m < call->ir->maps.n_maps; m++)
        n += line_count(call, &call->ir->maps.map[m]);
    return n;
}

/* Unit `unit` of all maps. */
static lathe_status run_unit(struct elementwise *e, int64_t unit, lathe_error *err)
{
    int m = 0;
    for (; m + 1 < e->ir->maps.n_maps && unit >= line_count(e->call, &e->ir->maps.map[m]); m++)
        unit -= line_count(e->call, &e->ir->maps.map[m]);
    return run_line(e, m, unit, err);
}

static lathe_status run(const struct host_call *call, const struct ir *ir, const int64_t *units, int64_t n,
                        lathe_error *err)
{
    struct elementwise *e = calloc(1, sizeof *e);
    if (!e)
        return host_out_of_memory(err);
    e->call = call;
    e->ir = ir;
    host_env_init(&e->env, call, 1);
    e->env.ir = ir;
    e->lengths = host_arg(call, "lengths");
    bool sums = false;
    for (int k = 0; k < ir->maps.n_tensors; k++)
        sums |= ir->maps.tensor[k].use == USE_SUM || ir->maps.tensor[k].use == USE_SCATTER;
    if (sums && units) { /* a part of a sum is nothing */
        units = NULL;
        n = host_elementwise_units(call);
    }
    lathe_status status = open_tensors(e, err);
    if (status == LATHE_OK)
        status = check_tensors(e, err);
    if (status == LATHE_OK)
        status = open_maps(e, err);
    for (int64_t i = 0; i < n && status == LATHE_OK; i++)
        status = run_unit(e, units ? units[i] : i, err);
    if (status == LATHE_OK)
        store_sums(e);
    close_all(e);
    return status;
}

lathe_status host_elementwise_forward(const struct host_call *call, const int64_t *units, int64_t n_units,
                                      lathe_error *err)
{
    return run(call, call->ir, units, n_units, err);
}

lathe_status host_elementwise_backward(const struct host_request *r, lathe_error *err)
{
    struct host_call call;
    lathe_status status = host_bind(&call, r->ir, r->sig, r->args, r->n, err);
    if (status != LATHE_OK)
        return status;
    if (!r->ir->maps.gradient)
        return lathe__fail(
            err, LATHE_UNSUPPORTED,
            "%s: lists of tensors, integer results and results with a slot have no backward pass",
            r->ir->name);
    call.mode = r->mode;
    return run(&call, r->ir->maps.gradient, NULL, host_elementwise_units(&call), err);
}
