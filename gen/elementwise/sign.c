/*
 * sign.c: which arguments maps take: the tensors of each, the lengths of lists, and the spec's inputs.
 */
#include "gen/arguments/sign.h"
#include "gen/elementwise/columns.h"
#include "gen/ir/kind.h"
#include "runtime/recipe/bind.h"

#include <string.h>

/* Dims in front may be left out where a tensor has all of its map's. */
static void set_map_dims(struct signature *s, const struct ir *ir, struct sig_arg *a,
                         const struct map_tensor *t)
{
    const struct ir_map *map = &ir->maps.map[t->map];
    bool whole = t->n_dims == map->n_over && t->n_dims > 1;
    const int first = t->slot ? 1 : 0;
    a->list = map->list;
    a->ndim = (uint8_t)(t->n_dims + first);
    if (t->slot) {
        a->dim[0].sym = t->slots;
        a->kept_by = (uint8_t)(1 + lathe__arg_find(s, ir->maps.tensor[t->slot - 1].name, 0));
    }
    if (map->list) {
        a->dim[0].sym = SYM_TENSORS;
        return;
    }
    for (int d = 0; d < t->n_dims; d++) {
        const bool pairs = t->form != STAGE_ELEMENT && d == t->n_dims - 1;
        a->dim[first + d] = (struct sig_dim){.sym = map->over[t->dim[d]], .times = pairs ? 2 : 0};
        whole &= t->dim[d] == d;
    }
    a->leading_optional = whole;
}

/* Is it a result that a cache of 8 bits may take? Not in place, nor rounded at random, for both are of
 * floats. */
static bool is_cached(const struct ir *ir, const struct map_tensor *t)
{
    return t->use == USE_STORE && t->dtype == LATHE_NONE && t->alias < 0 && t->dither < 0 &&
           !ir->maps.map[t->map].list;
}

static void add_tensor(struct signature *s, const struct ir *ir, int tensor, bool backward)
{
    const struct map_tensor *t = &ir->maps.tensor[tensor];
    const bool in_place = t->alias >= 0;
    const enum arg_role role = t->use == USE_READ     ? ROLE_IN
                               : backward || in_place ? ROLE_OUT_OPTIONAL
                                                      : ROLE_OUT;
    struct sig_arg *a = sign_add(s, role, "", t->name);
    if (!a)
        return;
    a->dtype = (uint8_t)t->dtype;
    a->narrow = is_cached(ir, t) && !backward ? NARROW_TAKEN : NARROW_NOT;
    a->optional = t->optional || role == ROLE_OUT_OPTIONAL;
    a->presence_built = (t->optional && !t->unread) || (backward && role == ROLE_OUT_OPTIONAL);
    a->grad = t->grad;
    a->default_value = t->default_value;
    a->alias = in_place ? (uint8_t)(1 + lathe__arg_find(s, ir->maps.tensor[t->alias].name, 0)) : 0;
    if (t->use != USE_SCATTER) {
        a->points = (uint8_t)(t->map * 4 + t->form);
        set_map_dims(s, ir, a, t);
        return;
    }
    const struct input *in = &ir->input[t->input];
    a->ndim = (uint8_t)in->n_dims;
    memcpy(a->dim, in->dim, (size_t)in->n_dims * sizeof in->dim[0]);
}

/* How many tensors there are in the lists, and how many elements each has. */
static void add_lengths(struct signature *s)
{
    struct sig_arg *a = sign_add(s, ROLE_INPUT, "", "lengths");
    if (!a)
        return;
    a->dtype = LATHE_I32;
    a->unit_last = true;
    a->ndim = 1;
    a->dim[0].sym = SYM_TENSORS;
}

static const struct sig_size LIST_SIZE = {.sym = SYM_TENSORS, .usual = 4};
static const struct sig_size FREE_SIZE = {.usual = 64};

void sign_elementwise(struct signature *s, const struct ir *ir, bool backward)
{
    const struct ir *work = backward ? ir->maps.gradient : ir;
    bool list = false;
    s->sharing = SHARING_ALIAS;
    s->counts_points = true;
    if (!work) { /* a list has no backward pass */
        sign_free_sizes(s, &FREE_SIZE);
        return;
    }
    for (int i = 0; i < work->maps.n_tensors; i++)
        if (work->maps.tensor[i].use != USE_NONE)
            add_tensor(s, work, i, backward);
    for (int m = 0; m < work->maps.n_maps; m++)
        list |= work->maps.map[m].list;
    if (list) {
        sign_sizes(s, &LIST_SIZE, 1);
        add_lengths(s);
    }
    sign_free_sizes(s, &FREE_SIZE);
    sign_inputs(s, work);
}
