/*
 * emit_map_launch.c: the launches of elementwise: parameters of its kernels, and the workspace of its sums.
 * In: a lowered spec, a plan. Out: struct map_params into e->out, launches and buffers into out. The kernel
 * sum is launched for every sum with the same parameters; `which` tells it.
 */
#include "emit_map.h"

struct map_launches {
    struct emitter *e;
    const struct plan *plan;
    int buffer[MAX_TENSORS]; /* of sums and scatters; -1: none */
};

static bool is_reduced(const struct map_tensor *t)
{
    return t->use == USE_SUM || t->use == USE_SCATTER;
}

/* Is it touched at all? */
static bool is_used(struct emitter *e, int tensor)
{
    const struct map_tensor *t = &e->w->tensor[tensor];
    return t->use == USE_READ ? operand_used(e, tensor) : t->use != USE_NONE;
}

/* ---- workspace ----------------------------------------------------------------------------------- */

/* Of a sum's matrix, as many parts as there can be: every step count is at least plan->steps. */
static struct product parts_bytes(const struct map_launches *l, const struct map_tensor *t)
{
    const struct ir_map *map = &l->e->w->map[t->map];
    struct product bytes = product_of(t->form == STAGE_ELEMENT ? 4 : 8);
    for (int k = 0; k < map->n_over; k++) {
        bool kept = false;
        for (int d = 0; d < t->n_dims; d++)
            kept |= t->dim[d] == k;
        const int reduced = k == map->n_over - 1          ? l->plan->vector
                            : k == l->plan->loop[t->map]  ? l->plan->steps
                            : k == l->plan->outer[t->map] ? l->plan->turns
                                                          : 1;
        product_times(&bytes, (enum sym)map->over[k], kept ? 1 : reduced);
    }
    return bytes;
}

static struct product scatter_bytes(const struct map_launches *l, const struct map_tensor *t)
{
    const struct input *in = &l->e->w->input[t->input];
    struct product bytes = product_of(l->e->problem->deterministic ? 48 : 4); /* exact_sum; float */
    for (int d = 0; d < in->n_dims; d++) {
        if (in->dim[d].literal > 0)
            bytes.scale *= in->dim[d].literal;
        else
            product_times(&bytes, (enum sym)in->dim[d].sym, 1);
    }
    return bytes;
}

static void add_buffers(struct map_launches *l, struct source *out)
{
    for (int i = 0; i < l->e->w->n_tensors; i++) {
        const struct map_tensor *t = &l->e->w->tensor[i];
        l->buffer[i] = -1;
        if (!is_reduced(t) || out->n_buffers == MAX_BUFFERS)
            continue;
        l->buffer[i] = out->n_buffers;
        out->buffer[out->n_buffers++] =
            (struct buffer){.bytes = t->use == USE_SUM ? parts_bytes(l, t) : scatter_bytes(l, t),
                            .zero = t->use == USE_SCATTER};
    }
}

/* ---- parameters ---------------------------------------------------------------------------------- */

static void tensor_param(struct params *p, struct emitter *e, int tensor)
{
    const struct map_tensor *t = &e->w->tensor[tensor];
    const bool scattered = t->use == USE_SCATTER;
    int dim[MAX_OVER] = {-1, -1, -1, -1, -1};
    char name[16];
    for (int d = 0; d < t->n_dims && !scattered; d++)
        dim[t->dim[d]] = d;
    for (int d = 0; scattered && d < e->w->input[t->input].n_dims; d++)
        dim[d] = d;
    snprintf(name, sizeof name, "t%d", tensor);
    params_map_tensor(p, name, signature_find(e->sig, t->name), dim, e->w->map[t->map].list);
}

/* The arguments that points of map m read and write. */
static uint64_t step_arguments(struct emitter *e, int m)
{
    uint64_t set = 0;
    for (int i = 0; i < e->w->n_tensors; i++) {
        const struct map_tensor *t = &e->w->tensor[i];
        const int arg = signature_find(e->sig, t->name);
        if (t->map == m && (t->use == USE_READ || t->use == USE_STORE) && is_used(e, i) && arg >= 0)
            set |= arg_bit(arg);
    }
    return e->w->map[m].list ? 0 : set;
}

static void emit_params(struct map_launches *l, struct text_buf *text, struct launch *launch, int which)
{
    struct emitter *e = l->e;
    struct params p;
    char name[16];
    params_open(&p, text, launch, "map_params");
    for (int m = 0; m < e->w->n_maps; m++) {
        snprintf(name, sizeof name, "z%d", m);
        params_map_sizes(&p, name, &e->w->map[m], step_arguments(e, m));
    }
    const int lengths = signature_find(e->sig, "lengths");
    if (lengths >= 0 && e->sig->arg[lengths].dim[0].sym == SYM_TENSORS)
        params_pointer(&p, "const int", "lengths", PARAM_ARG_DATA, lengths);
    for (int i = 0; i < e->w->n_tensors; i++)
        if (is_used(e, i))
            tensor_param(&p, e, i);
    for (int i = 0; i < e->w->n_tensors; i++) {
        if (l->buffer[i] < 0)
            continue;
        snprintf(name, sizeof name, "g%d", i);
        params_pointer(&p, map_sum_type(e, i), name, PARAM_WORK_DATA, l->buffer[i]);
        snprintf(name, sizeof name, "h%d", i);
        if (e->w->tensor[i].use == USE_SCATTER)
            params_map_counts(&p, name, &e->w->input[e->w->tensor[i].input]);
    }
    params_inputs(&p, e, "x");
    const struct product number = product_of(which);
    params_product(&p, "which", &number);
    params_close(&p, "map_params");
}

/* ---- launches ------------------------------------------------------------------------------------ */

static struct launch *add_launch(struct map_launches *l, const char *role, struct source *out)
{
    static struct launch none; /* written where there is no room, never read */
    if (out->n_launches == MAX_LAUNCHES) {
        l->e->out->failed = true;
        return &none;
    }
    struct launch *launch = &out->launch[out->n_launches++];
    *launch = (struct launch){.threads = l->plan->threads, .grid = product_of(l->plan->blocks)};
    snprintf(launch->entry, sizeof launch->entry, "%.24s_%s_%s", l->e->w->name,
             lathe_dtype_text(l->e->problem->dtype), role);
    return launch;
}

/* Of one map no more blocks than there are tiles, and none where there is no point. */
static void bound_grid(struct map_launches *l, struct launch *launch)
{
    const struct ir_map *map = &l->e->w->map[0];
    if (l->e->w->n_maps > 1 || map->list)
        return;
    launch->grid = product_of(1);
    launch->grid_limit = l->plan->most_blocks;
    for (int k = 0; k < map->n_over; k++)
        product_times(&launch->grid, (enum sym)map->over[k],
                      k == map->n_over - 1     ? l->plan->vector * l->plan->threads
                      : k == l->plan->loop[0]  ? l->plan->steps
                      : k == l->plan->outer[0] ? l->plan->turns
                                               : 1);
}

void emit_map_launches(struct emitter *e, const struct plan *plan, struct source *out)
{
    struct map_launches l = {.e = e, .plan = plan};
    struct text_buf again = {0}; /* the struct, which is there already */
    add_buffers(&l, out);
    struct launch *map = add_launch(&l, "points", out);
    bound_grid(&l, map);
    emit_params(&l, e->out, map, 0);
    int sums = 0;
    for (int i = 0; i < e->w->n_tensors; i++)
        if (is_reduced(&e->w->tensor[i]))
            emit_params(&l, &again, add_launch(&l, "sum", out), sums++);
    e->out->failed |= again.failed;
    text_free(&again);
}
