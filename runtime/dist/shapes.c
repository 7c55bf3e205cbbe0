/*
 * shapes.c: do the arguments of a rank fit each other? In: the arguments that an object is made with. Out:
 * one sentence where they do not. Schemes cut tensors before any call of the library sees them, and what lies
 * outside of one would be read.
 */
#include "runtime/dist/dist.h"

#include <string.h>

enum { MOST_SIZES = 24 };

struct sizes { /* of dims by their names, and who said so */
    int n;
    struct {
        const char *name, *of;
        int64_t value;
    } item[MOST_SIZES];
};

static lathe_status check_size(struct sizes *s, const char *name, const struct tensor *t, int dim,
                               lathe_error *err)
{
    int i = 0;
    while (i < s->n && strcmp(s->item[i].name, name) != 0)
        i++;
    if (i == MOST_SIZES)
        return LATHE_OK;
    if (i == s->n) {
        s->item[s->n].name = name;
        s->item[s->n].of = t->name;
        s->item[s->n++].value = t->shape[dim];
    }
    if (s->item[i].value == t->shape[dim])
        return LATHE_OK;
    return lathe__fail(err, LATHE_ARG,
                       "dist: argument '%s': expected %s=%lld in dim %d, as '%s' has, given %lld", t->name,
                       name, (long long)s->item[i].value, dim, s->item[i].of, (long long)t->shape[dim]);
}

static bool is_keyed(const char *name)
{
    bool found = false;
    for (int i = 0; i < KEYED; i++)
        found |= strcmp(name, lathe__dist_keyed[i]) == 0 || strcmp(name, lathe__dist_keyed_back[i]) == 0;
    return found;
}

/* Of an input, or the gradient of one, that has a place for each query of all. */
static lathe_status check_rows(const struct lathe_dist *d, const struct tensor *t, int dim, lathe_error *err)
{
    if (t->shape[dim] == d->q_all)
        return LATHE_OK;
    return lathe__fail(err, LATHE_ARG,
                       "dist: argument '%s': expected q=%lld in dim %d, the queries of all ranks, given %lld",
                       t->name, (long long)d->q_all, dim, (long long)t->shape[dim]);
}

static lathe_status check_argument(const struct lathe_dist *d, const lathe_arg_info *info,
                                   const struct tensor *t, bool paged, struct sizes *s, lathe_error *err)
{
    const bool of_all = info->is_input || lathe__dist_is_share(d, info->name);
    for (int k = 0; k < info->ndim; k++) {
        const char *const name = info->dim[k].name;
        const bool in_pages = paged && is_keyed(info->name) && k % 2 == 0; /* [pool,h_kv,page,d] */
        if (!name[0] || info->dim[k].times != 1 || info->dim[k].plus != 0 || in_pages)
            continue;
        if (of_all && strcmp(name, "q") == 0)
            TRY(check_rows(d, t, k, err));
        else if (!of_all)
            TRY(check_size(s, name, t, k, err));
    }
    return LATHE_OK;
}

lathe_status lathe__dist_check_shapes(const struct lathe_dist *d, lathe_error *err)
{
    struct sizes sizes = {.n = 0};
    lathe_arg_info info;
    bool paged = false;
    for (int i = 0; i < d->n_args; i++)
        paged |= strcmp(d->arg[i].name, "pages") == 0;
    for (int k = 0; lathe_spec_arg(d->spec, d->pass, k, &info); k++)
        for (int i = 0; i < d->n_args; i++)
            if (strcmp(info.name, d->arg[i].name) == 0 && info.ndim == d->arg[i].ndim)
                TRY(check_argument(d, &info, &d->arg[i], paged, &sizes, err));
    return LATHE_OK;
}
