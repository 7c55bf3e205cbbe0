/*
 * emit_launch.c: the launches of elementwise: parameters of its kernels, and the workspace of its sums.
 * In: a lowered spec, a plan. Out: struct map_params into e->out, launches and buffers into out. The kernel
 * sum is launched for every sum with the same parameters; `which` tells it.
 */
#include "gen/elementwise/emit.h"
#include "runtime/recipe/bind.h"
#include "gen/base/text.h"
#include "gen/plan/plan.h"

#include <stdio.h>

struct map_launches {
    struct emitter *e;
    const struct plan *plan;
    int buffer[MAX_TENSORS]; /* of sums and scatters; -1: none */
    int first;               /* of elementwise_gather: its own buffers, in the order of GATHER */
    int taken;               /* of lists: tiles taken so far, a word for each map; -1: none */
};

/* What elementwise/gather.cuh keeps in 64-bit words: of rows (one or two), of lines, or two of them. */
enum gather_size { OF_ROWS, OF_TWICE_ROWS, OF_LINES, OF_TWO };
static const struct gather_buffer {
    const char *name;
    enum gather_size size;
    bool zero;
} GATHER[] = {{"counts", OF_ROWS, true},  {"totals", OF_TWO, true},  {"begins", OF_TWICE_ROWS, false},
              {"ranks", OF_LINES, false}, {"list", OF_LINES, false}, {"longs", OF_LINES, false}};
enum { GATHERS = (int)(sizeof GATHER / sizeof *GATHER) };

static bool is_reduced(const struct map_tensor *t)
{
    return t->use == USE_SUM || t->use == USE_SCATTER;
}

/* Is it touched at all? */
static bool is_used(struct emitter *e, int tensor)
{
    const struct map_tensor *t = &e->w->maps.tensor[tensor];
    return t->use == USE_READ ? operand_used(e, tensor) : t->use != USE_NONE;
}

/* ---- workspace ----------------------------------------------------------------------------------- */

/* Of a sum's matrix, as many parts as there can be: every step count is at least plan->maps.steps. */
static struct product parts_bytes(const struct map_launches *l, const struct map_tensor *t)
{
    const struct ir_map *map = &l->e->w->maps.map[t->map];
    struct product bytes = product_of(t->form == STAGE_ELEMENT ? 4 : 8);
    for (int k = 0; k < map->n_over; k++) {
        bool kept = false;
        for (int d = 0; d < t->n_dims; d++)
            kept |= t->dim[d] == k;
        const int reduced = k == map->n_over - 1               ? l->plan->maps.vector
                            : k == l->plan->maps.loop[t->map]  ? l->plan->maps.steps
                            : k == l->plan->maps.outer[t->map] ? l->plan->maps.turns
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

/* scale * rows of the input that is gathered (all dims but the last), so many at a time; of its lines of
 * points. */
static struct product rows_of(const struct map_launches *l, const struct map_tensor *t, int scale, int tile)
{
    const struct input *in = &l->e->w->input[t->input];
    struct product rows = product_of(scale);
    for (int d = 0; d + 1 < in->n_dims; d++) {
        const int of = d + 2 == in->n_dims ? tile : 1;
        if (in->dim[d].literal > 0)
            rows.scale *= (in->dim[d].literal + of - 1) / of;
        else
            product_times(&rows, (enum sym)in->dim[d].sym, of);
    }
    return rows;
}

static struct product lines_of(const struct map_launches *l, int scale, int tile)
{
    const struct ir_map *map = &l->e->w->maps.map[0];
    struct product lines = product_of(scale);
    for (int k = 0; k + 1 < map->n_over; k++)
        product_times(&lines, (enum sym)map->over[k], k + 2 == map->n_over ? tile : 1);
    return lines;
}

static struct product gather_bytes(const struct map_launches *l, const struct map_tensor *t,
                                   enum gather_size size)
{
    switch (size) {
    case OF_ROWS:
        return rows_of(l, t, 8, 1);
    case OF_TWICE_ROWS:
        return rows_of(l, t, 16, 1);
    case OF_LINES:
        return lines_of(l, 8, 1);
    case OF_TWO:
        break;
    }
    return product_of(16);
}

static void add_gather_buffers(struct map_launches *l, struct source *out)
{
    const struct map_tensor *t = &l->e->w->maps.tensor[l->e->w->maps.map[0].scatter[0].tensor];
    l->first = out->n_buffers;
    for (int b = 0; b < GATHERS; b++)
        out->buffer[add_buffer(out, l->e, gather_bytes(l, t, GATHER[b].size))].zero = GATHER[b].zero;
}

static void add_buffers(struct map_launches *l, struct source *out)
{
    bool lists = false;
    for (int m = 0; m < l->e->w->maps.n_maps; m++)
        lists |= l->e->w->maps.map[m].list;
    l->taken = -1;
    if (lists) {
        l->taken = add_buffer(out, l->e, product_of(4 * MAX_MAPS));
        out->buffer[l->taken].zero = true;
    }
    for (int i = 0; i < l->e->w->maps.n_tensors; i++) {
        const struct map_tensor *t = &l->e->w->maps.tensor[i];
        l->buffer[i] = -1;
        if (!is_reduced(t) || l->plan->maps.gather)
            continue;
        l->buffer[i] = add_buffer(out, l->e, t->use == USE_SUM ? parts_bytes(l, t) : scatter_bytes(l, t));
        out->buffer[l->buffer[i]].zero = t->use == USE_SCATTER;
    }
}

/* ---- parameters ---------------------------------------------------------------------------------- */

static void tensor_param(struct params *p, struct emitter *e, int tensor)
{
    const struct map_tensor *t = &e->w->maps.tensor[tensor];
    const bool scattered = t->use == USE_SCATTER;
    int dim[MAX_OVER] = {-1, -1, -1, -1, -1};
    char name[16];
    for (int d = 0; d < t->n_dims && !scattered; d++)
        dim[t->dim[d]] = d + (t->slot ? 1 : 0);
    if (t->slot)
        dim[map_slot_dim(e->w->maps.tensor, t)] = 0;
    for (int d = 0; scattered && d < e->w->input[t->input].n_dims; d++)
        dim[d] = d;
    snprintf(name, sizeof name, "t%d", tensor);
    params_map_tensor(p, name, lathe__arg_find(e->sig, t->name, 0), dim, e->w->maps.map[t->map].list);
    snprintf(name, sizeof name, "slots%d", tensor);
    if (t->slot)
        params_sym(p, name, t->slots);
}

/* The arguments that points of map m read and write. */
static uint64_t step_arguments(struct emitter *e, int m)
{
    uint64_t set = 0;
    for (int i = 0; i < e->w->maps.n_tensors; i++) {
        const struct map_tensor *t = &e->w->maps.tensor[i];
        const int arg = lathe__arg_find(e->sig, t->name, 0);
        if (t->map == m && (t->use == USE_READ || t->use == USE_STORE) && is_used(e, i) && arg >= 0)
            set |= arg_bit(arg);
    }
    return e->w->maps.map[m].list ? 0 : set;
}

static void sizes_param(struct params *p, struct emitter *e, int m)
{
    char name[16];
    snprintf(name, sizeof name, "z%d", m);
    params_map_sizes(p, name, &e->w->maps.map[m], step_arguments(e, m));
}

static void which_param(struct params *p, int which)
{
    const struct product number = product_of(which);
    params_product(p, "which", &number);
}

/* As make_space of elementwise/parts.cuh numbers the items of map m: where loops are as long as the device
 * stays busy, a loop has no more parts than that takes. */
static void count_items(const struct map_launches *l, struct params *p, int m)
{
    const struct ir_map *map = &l->e->w->maps.map[m];
    const struct map_plan *plan = &l->plan->maps;
    struct product items = product_of(1);
    for (int k = 0; k < map->n_over; k++) {
        const bool last = k == map->n_over - 1;
        const bool parted = !last && (k == plan->loop[m] || k == plan->outer[m]);
        if (!parted || !plan->long_loops)
            product_times(&items, (enum sym)map->over[k],
                          last                 ? plan->vector
                          : !parted            ? 1
                          : k == plan->loop[m] ? plan->steps
                                               : plan->turns);
    }
    if (!map->list && !plan->gather)
        params_counted(p, &items);
}

/* What the functions of map 0 see, of the one map whose turn it is. */
static void emit_view(struct emitter *e, struct text_buf *text)
{
    text_add(text, "struct map_params { // of one of the maps, which are alike\n    const map_sizes &z0;\n");
    for (int i = 0; i < e->w->maps.n_tensors; i++)
        if (is_used(e, i) && e->w->maps.tensor[i].map == 0)
            text_add(text, "    const map_tensor &t%d;\n", i);
    text_add(text, "    const inputs &x;\n};\nDEV map_params params_of(const map_arguments &p, int k)\n{\n"
                   "    return {p.part[k].z0");
    for (int i = 0; i < e->w->maps.n_tensors; i++)
        if (is_used(e, i) && e->w->maps.tensor[i].map == 0)
            text_add(text, ", p.part[k].t%d", i);
    text_add(text, ", p.x};\n}\n\n");
}

/* Of maps that are alike: a part for each, and a text for all of them. */
static void emit_alike_params(struct map_launches *l, struct text_buf *text, struct launch *launch)
{
    struct emitter *e = l->e;
    struct text_buf again = {0}; /* the members, which are there already */
    struct params p;
    params_open(&p, text, launch, "map_arguments");
    text_add(text, "    struct {\n");
    for (int m = 0; m < e->w->maps.n_maps; m++) {
        p.out = m > 0 ? &again : text;
        sizes_param(&p, e, m);
        count_items(l, &p, m);
        for (int i = 0; i < e->w->maps.n_tensors; i++)
            if (is_used(e, i) && e->w->maps.tensor[i].map == m)
                tensor_param(&p, e, i);
    }
    p.out = text;
    text_add(text, "    } part[%d];\n", e->w->maps.n_maps);
    params_inputs(&p, e, "x");
    which_param(&p, 0);
    params_close(&p, "map_arguments");
    emit_view(e, text);
    text_fail_with(text, &again);
    text_free(&again);
}

static void emit_params(struct map_launches *l, struct text_buf *text, struct launch *launch, int which)
{
    struct emitter *e = l->e;
    struct params p;
    char name[16];
    params_open(&p, text, launch, "map_params");
    for (int m = 0; m < e->w->maps.n_maps; m++) {
        sizes_param(&p, e, m);
        count_items(l, &p, m);
    }
    const int lengths = lathe__arg_find(e->sig, "lengths", 0);
    if (lengths >= 0 && e->sig->arg[lengths].dim[0].sym == SYM_TENSORS)
        params_pointer(&p, "const int", "lengths", PARAM_ARG_DATA, lengths);
    if (l->taken >= 0)
        params_pointer(&p, "unsigned", "taken", PARAM_WORK_DATA, l->taken);
    for (int i = 0; i < e->w->maps.n_tensors; i++)
        if (is_used(e, i))
            tensor_param(&p, e, i);
    for (int b = 0; b < GATHERS && l->plan->maps.gather; b++)
        params_pointer(&p, "unsigned long long", GATHER[b].name, PARAM_WORK_DATA, l->first + b);
    for (int i = 0; i < e->w->maps.n_tensors; i++) {
        if (l->buffer[i] < 0 && !(l->plan->maps.gather && is_reduced(&e->w->maps.tensor[i])))
            continue;
        snprintf(name, sizeof name, "g%d", i);
        if (l->buffer[i] >= 0)
            params_pointer(&p, map_sum_type(e, i), name, PARAM_WORK_DATA, l->buffer[i]);
        snprintf(name, sizeof name, "h%d", i);
        if (e->w->maps.tensor[i].use == USE_SCATTER)
            params_map_counts(&p, name, &e->w->input[e->w->maps.tensor[i].input]);
    }
    params_inputs(&p, e, "x");
    which_param(&p, which);
    params_close(&p, "map_params");
    text_add(text, "using map_arguments = map_params;\n"
                   "DEV const map_params &params_of(const map_arguments &p, int) { return p; }\n\n");
}

/* ---- launches ------------------------------------------------------------------------------------ */

/* Of one map no more blocks than there are tiles, and none where there is no point. */
static void bound_grid(struct map_launches *l, struct launch *launch)
{
    const struct ir_map *map = &l->e->w->maps.map[0];
    if (l->e->w->maps.n_maps > 1 || map->list)
        return;
    launch->grid = product_of(1);
    launch->grid_limit = l->plan->maps.most_blocks;
    for (int k = 0; k < map->n_over; k++)
        product_times(&launch->grid, (enum sym)map->over[k],
                      k == map->n_over - 1          ? l->plan->maps.vector * l->plan->maps.threads
                      : k == l->plan->maps.loop[0]  ? l->plan->maps.steps
                      : k == l->plan->maps.outer[0] ? l->plan->maps.turns
                                                    : 1);
}

/* The kernels of elementwise/gather.cuh, in order. Their grids are what is to be done, or less. */
static void emit_gather_launches(struct map_launches *l, struct source *out)
{
    enum { TEAMS = 8, COLUMNS = 4 * 32, LONG_THREADS = 1024 }; /* as there */
    struct text_buf again = {0};                               /* the struct, which is there already */
    const struct plan *plan = l->plan;
    const struct ir *w = l->e->w;
    const struct map_tensor *t = &w->maps.tensor[w->maps.map[0].scatter[0].tensor];
    struct product gather = rows_of(l, t, 1, TEAMS);
    product_times(&gather, (enum sym)w->maps.map[0].over[w->maps.map[0].n_over - 1],
                  COLUMNS * plan->maps.vector);
    const struct {
        const char *role;
        struct product grid;
        int threads, limit;
    } kernel[] = {{"count", lines_of(l, 1, plan->maps.threads), plan->maps.threads, 4 * plan->maps.blocks},
                  {"start", rows_of(l, t, 1, plan->maps.threads), plan->maps.threads, 4 * plan->maps.blocks},
                  {"order", lines_of(l, 1, plan->maps.threads), plan->maps.threads, 4 * plan->maps.blocks},
                  {"gather", gather, plan->maps.threads, plan->maps.most_blocks},
                  {"longs", product_of(plan->maps.blocks), LONG_THREADS, 0}};
    add_gather_buffers(l, out);
    for (size_t k = 0; k < sizeof kernel / sizeof *kernel; k++) {
        struct launch *launch = add_launch(out, l->e, kernel[k].role, kernel[k].threads);
        launch->grid = kernel[k].grid;
        launch->grid_limit = kernel[k].limit;
        emit_params(l, k > 0 ? &again : l->e->out, launch, 0);
    }
    text_fail_with(l->e->out, &again);
    text_free(&again);
}

void emit_map_launches(struct emitter *e, const struct plan *plan, struct source *out)
{
    struct map_launches l = {.e = e, .plan = plan};
    struct text_buf again = {0}; /* the struct, which is there already */
    if (plan->maps.gather) {
        for (int i = 0; i < e->w->maps.n_tensors; i++)
            l.buffer[i] = -1;
        emit_gather_launches(&l, out);
        return;
    }
    add_buffers(&l, out);
    struct launch *map = add_launch(out, e, "points", plan->maps.threads);
    map->grid = product_of(plan->maps.blocks);
    bound_grid(&l, map);
    if (maps_are_alike(e, plan)) {
        emit_alike_params(&l, e->out, map);
        return;
    }
    emit_params(&l, e->out, map, 0);
    int sums = 0;
    for (int i = 0; i < e->w->maps.n_tensors; i++)
        if (is_reduced(&e->w->maps.tensor[i])) {
            struct launch *sum = add_launch(out, e, "sum", plan->maps.threads);
            sum->grid = product_of(plan->maps.blocks);
            emit_params(&l, &again, sum, sums++);
        }
    text_fail_with(e->out, &again);
    text_free(&again);
}
