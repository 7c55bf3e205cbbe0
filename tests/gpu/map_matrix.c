/*
 * map_matrix.c: the element-wise cases. In: the name of a group, a pass. Out: cases at the end of the list.
 * Every size of a spec meets bf16, f16 and f32; layouts, strides, what is left out and where results lie take
 * turns, so that every spec meets all of them.
 */
#include "maps.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MAX_MAP_CASES = 4096 };
static struct map_case stored[MAX_MAP_CASES]; /* what cases point to; filled by one thread before any runs */
static int n_stored;

void map_name(const struct test_case *c, const char *pass, char *out, size_t size)
{
    static const char *const MEMORY[] = {"", " same memory", " in place"};
    const struct map_case *m = c->map;
    char tensors[32] = "";
    if (m->spec->list) {
        (void)snprintf(tensors, sizeof tensors, " %" PRId64 " tensors", m->tensors);
    }
    (void)snprintf(out, size, "%s%s%s%s%s%s%s%s%s seed %" PRIu64, m->spec->name, pass,
                   *tensors ? tensors : " ", *tensors ? "" : m->sizes, MEMORY[m->memory],
                   m->skip ? " dims left out" : "", m->mixed ? " mixed" : "", m->dithered ? " dithered" : "",
                   c->absent ? " absent" : "", c->seed);
}

static void add_map(struct case_list *list, const struct map_case *m, lathe_pass pass, lathe_dtype dtype,
                    int layout, bool absent)
{
    if (n_stored == MAX_MAP_CASES) {
        list->failed = true;
        return;
    }
    stored[n_stored] = *m;
    struct test_case c;
    memset(&c, 0, sizeof c);
    c.map = &stored[n_stored++];
    c.sums = m->spec >= linear_specs && m->spec < linear_specs + linear_spec_count;
    c.pass = pass;
    c.absent = absent;
    c.deterministic = pass == LATHE_BACKWARD && n_stored % 3 == 2;
    c.rounding = dtype == LATHE_F32 ? LATHE_F32 : LATHE_BF16;
    struct test_case *added = case_add(list, &c);
    const enum layout first = (enum layout)(layout % LAYOUT_COUNT);
    if (!added) {
        return;
    }
    added->run[added->n_runs++] = (struct case_run){dtype, first};
    if (dtype == LATHE_BF16) {
        added->run[added->n_runs++] =
            (struct case_run){LATHE_F16, (enum layout)((layout + 1) % LAYOUT_COUNT)};
        added->run[added->n_runs++] =
            (struct case_run){LATHE_BF16, (enum layout)((layout + 3) % LAYOUT_COUNT)};
    }
}

static bool has_alias(const struct map_spec *spec)
{
    bool any = false;
    for (const struct map_arg *arg = spec->arg; arg->row.name[0]; arg++) {
        any |= arg->alias != NULL;
    }
    return any;
}

/* Leading dims of 1 that a call may do without. */
static int leading_ones(const struct map_case *m)
{
    static const char *const NAME[] = {"a", "b", "rows"};
    int n = 0;
    while (n < m->spec->leading && map_size(m->sizes, NAME[n]) == 1) {
        n++;
    }
    return n;
}

static void maps_of_spec(struct case_list *list, const struct map_spec *spec, lathe_pass pass, bool quick)
{
    const int turn = (int)(spec - map_specs);
    for (int i = 0; spec->sizes[i] && (!quick || i < 2); i++) {
        struct map_case m = {.spec = spec, .sizes = spec->sizes[i]};
        const bool absent = (i + turn) % 2 == 1;
        const int k = i + turn;
        m.skip = k % 3 == 0 ? 0 : leading_ones(&m) / (k % 3 == 1 ? 1 : 2);
        m.memory = pass == LATHE_FORWARD && has_alias(spec) ? (enum memory)(k % 3) : MEMORY_APART;
        add_map(list, &m, pass, LATHE_BF16, k, absent);
        m.memory = pass == LATHE_FORWARD && has_alias(spec) ? (enum memory)((k + 1) % 3) : MEMORY_APART;
        m.strided = k % 4 == 2;
        add_map(list, &m, pass, LATHE_F32, m.strided ? 0 : k + 2, !absent);
        m.memory = MEMORY_APART;
        m.mixed = k % 2 == 0;
        m.strided = k % 4 == 0;
        if (!quick) {
            add_map(list, &m, pass, LATHE_BF16, m.strided ? 0 : k + 2, !absent);
        }
    }
}

static void lists_of_spec(struct case_list *list, const struct map_spec *spec, bool quick)
{
    static const int64_t TENSORS[] = {10, 1, 300, 0, 257};
    for (int i = 0; i < (quick ? 2 : 5); i++) {
        for (int kind = 0; kind < 4; kind++) {
            struct map_case m = {.spec = spec, .sizes = spec->sizes[0], .tensors = TENSORS[i]};
            m.memory = (enum memory)((i + kind) % 3);
            m.dithered = kind == 3 && spec->arg[0].row.dtype == LATHE_NONE; /* one without f32 has a seed */
            m.mixed = kind == 2;
            if (m.mixed) {
                m.memory = MEMORY_LEFT_OUT;
            }
            const bool ragged = (i + kind) % 2 == 1;
            add_map(list, &m, LATHE_FORWARD, kind == 1 ? LATHE_F32 : LATHE_BF16,
                    ragged ? LAYOUT_MISALIGNED : LAYOUT_COMPACT, kind == 2);
        }
    }
}

/* Layouts, optional arguments and determinism take turns; the host device's reference is of the same
 * arguments. */
static void linear_cases(struct case_list *list, lathe_pass pass, bool quick)
{
    for (int k = 0; k < linear_spec_count; k++) {
        const struct map_spec *spec = &linear_specs[k];
        const bool wanted = pass == LATHE_FORWARD || !spec->no_grad;
        for (int i = 0; wanted && spec->sizes[i] && (!quick || i < 2); i++) {
            const struct map_case m = {.spec = spec, .sizes = spec->sizes[i]};
            add_map(list, &m, pass, LATHE_BF16, k + i, (k + i) % 2 == 1);
            add_map(list, &m, pass, LATHE_F32, k + i + 2, (k + i) % 2 == 0);
        }
    }
}

void cases_of_maps(struct case_list *list, const char *group, lathe_pass pass, bool quick)
{
    if (strcmp(group, "linear") == 0) {
        linear_cases(list, pass, quick);
        return;
    }
    for (int i = 0; i < map_spec_count; i++) {
        const struct map_spec *spec = &map_specs[i];
        const bool maps =
            strcmp(group, "elementwise") == 0 && !spec->slow && !(pass == LATHE_BACKWARD && spec->no_grad);
        if (spec->list && strcmp(group, "lists") == 0) {
            lists_of_spec(list, spec, quick);
        } else if (!spec->list && (maps || (spec->slow && strcmp(group, "packed") == 0 && !quick))) {
            maps_of_spec(list, spec, pass, quick);
        }
    }
}
