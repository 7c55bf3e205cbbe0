/*
 * matrix.c: the fixed cases, as lists of sizes per group.
 *
 * In: the name of a group. Out: cases appended to the caller's list (freed by the caller). Two runs a case
 * (bf16 and f16) take turns over the layouts, so that every spec meets many of them in both dtypes
 * while a reference, which is the slow part, is computed once. `quick` keeps a part of each group.
 */
#include "forms.h"
#include "maps.h"

#include <stdlib.h>
#include <string.h>

#define GRAD "grad_"
const char *const matrix_groups[] = {"lengths",
                                     "unequal",
                                     "heads",
                                     "dims",
                                     "layouts",
                                     "f32",
                                     "mla",
                                     "data",
                                     "masks",
                                     GRAD "masks",
                                     "q_start",
                                     "rowwise",
                                     "linear",
                                     GRAD "linear",
                                     GRAD "lengths",
                                     GRAD "unequal",
                                     GRAD "heads",
                                     GRAD "dims",
                                     GRAD "layouts",
                                     GRAD "f32",
                                     GRAD "data",
                                     GRAD "q_start",
                                     GRAD "rowwise",
                                     "elementwise",
                                     GRAD "elementwise",
                                     "lists",
                                     "forms",
                                     "packed",
                                     "odd",
                                     GRAD "odd",
                                     NULL};

struct test_case *case_add(struct case_list *list, const struct test_case *c)
{
    if (list->n == list->capacity) {
        const int capacity = list->capacity ? 2 * list->capacity : 64;
        struct test_case *item = realloc(list->item, (size_t)capacity * sizeof *item);
        if (!item) {
            list->failed = true;
            return NULL;
        }
        list->item = item;
        list->capacity = capacity;
    }
    list->item[list->n] = *c;
    list->item[list->n].seed = (uint64_t)list->n * 7919 + 1;
    return &list->item[list->n++];
}

/* Layouts that every kernel must serve; the ragged ones after them have the group `layouts`. */
enum { REGULAR_LAYOUTS = LAYOUT_PADDED + 1 };

static void add_run(struct test_case *c, lathe_dtype dtype, int layout)
{
    if (c->n_runs < CASE_RUNS) {
        c->run[c->n_runs++] = (struct case_run){dtype, (enum layout)(layout % LAYOUT_COUNT)};
    }
}

static struct test_case attention(const struct spec_row *spec)
{
    struct test_case c;
    memset(&c, 0, sizeof c);
    c.spec = spec;
    c.rounding = LATHE_BF16;
    c.dim[DIM_B] = 2;
    c.dim[DIM_H] = 4;
    c.dim[DIM_H_KV] = 2;
    c.dim[DIM_Q] = c.dim[DIM_KV] = 130;
    c.dim[DIM_D] = c.dim[DIM_D_V] = 64;
    return c;
}

static bool sizes_fit(const struct test_case *c)
{
    if (spec_values_in_keys(c->spec) && c->dim[DIM_D_V] > c->dim[DIM_D]) {
        return false;
    }
    const int64_t start = c->has_q_start ? c->q_start : c->dim[DIM_KV] - c->dim[DIM_Q];
    return !c->spec->rows_are_keys || (start >= 0 && start + c->dim[DIM_Q] <= c->dim[DIM_KV]);
}

/* Add it with a bf16 and an f16 run in layouts that change from case to case. */
static void add_pair(struct case_list *list, const struct test_case *c)
{
    if (!sizes_fit(c)) {
        return;
    }
    struct test_case *added = case_add(list, c);
    if (added) {
        add_run(added, LATHE_BF16, list->n % REGULAR_LAYOUTS);
        add_run(added, LATHE_F16, (list->n + 1) % REGULAR_LAYOUTS);
    }
}

/* q = kv, on and beside the edges of tiles. */
static void group_lengths(struct case_list *list, const struct spec_row *spec, bool quick)
{
    static const int LENGTH[] = {1, 65, 130, 17, 63, 64, 127, 257, 1000};
    const int n = quick ? 3 : (int)(sizeof LENGTH / sizeof LENGTH[0]);
    for (int i = 0; i < n; i++) {
        struct test_case c = attention(spec);
        c.dim[DIM_Q] = c.dim[DIM_KV] = LENGTH[i];
        if (LENGTH[i] > 500) {
            c.dim[DIM_B] = c.dim[DIM_H_KV] = 1;
            c.dim[DIM_H] = 2;
        }
        add_pair(list, &c);
    }
}

/* q > kv leaves rows without keys where the mask is causal; kv = 0 leaves all of them. */
static void group_unequal(struct case_list *list, const struct spec_row *spec, bool quick)
{
    static const int SIZE[][2] = {{70, 5}, {5, 70}, {3, 0},   {1, 300},   {300, 1},  {65, 257}, {257, 65},
                                  {0, 9},  {0, 0},  {130, 0}, {17, 1000}, {128, 64}, {64, 128}, {129, 191}};
    const int n = quick ? 3 : (int)(sizeof SIZE / sizeof SIZE[0]);
    for (int i = 0; i < n; i++) {
        struct test_case c = attention(spec);
        c.dim[DIM_B] = 1;
        c.dim[DIM_Q] = SIZE[i][0];
        c.dim[DIM_KV] = SIZE[i][1];
        add_pair(list, &c);
    }
}

static void group_heads(struct case_list *list, const struct spec_row *spec, bool quick)
{
    static const int HEADS[][3] = {{3, 8, 2}, {1, 8, 1}, {2, 3, 3}, {1, 1, 1}, {2, 6, 3}, {5, 5, 1}};
    const int n = quick ? 1 : (int)(sizeof HEADS / sizeof HEADS[0]);
    for (int i = 0; i < n; i++) {
        struct test_case c = attention(spec);
        c.dim[DIM_B] = HEADS[i][0];
        c.dim[DIM_H] = HEADS[i][1];
        c.dim[DIM_H_KV] = HEADS[i][2];
        c.dim[DIM_Q] = 70;
        c.dim[DIM_KV] = 81;
        add_pair(list, &c);
    }
    for (int i = 0; i < 3; i++) { /* long walks over few keys, which a backward pass cuts */
        static const int DIMS[] = {64, 128, 192};
        struct test_case c = attention(spec);
        c.dim[DIM_H] = 6;
        c.dim[DIM_Q] = 700;
        c.dim[DIM_KV] = 300;
        c.dim[DIM_D] = c.dim[DIM_D_V] = DIMS[i];
        if (!quick || i == (int)(spec - spec_rows) % 3)
            add_pair(list, &c);
    }
    if (!quick) {
        struct test_case c = attention(spec);
        c.dim[DIM_B] = 0;
        add_pair(list, &c);
    }
}

/* Kernels are compiled per head dim, so only some specs walk the whole list; the others take turns. */
static bool walks_all_dims(const struct spec_row *spec)
{
    static const char *const NAME[] = {"full", "causal", "softcap", "rope", "qk_norm"};
    for (size_t i = 0; i < sizeof NAME / sizeof NAME[0]; i++) {
        if (strcmp(NAME[i], spec->name) == 0) {
            return true;
        }
    }
    return false;
}

static void group_dims(struct case_list *list, const struct spec_row *spec, bool quick)
{
    static const int DIMS[][2] = {{128, 128}, {40, 40},  {256, 256}, {16, 16},   {24, 24},
                                  {72, 72},   {96, 96},  {160, 160}, {192, 192}, {192, 128},
                                  {128, 256}, {64, 512}, {8, 8},     {264, 264}};
    const int turn = (int)(spec - spec_rows);
    const int n = (int)(sizeof DIMS / sizeof DIMS[0]);
    for (int i = 0; i < n; i++) {
        const bool mine = walks_all_dims(spec) || (i + turn) % 4 == 0;
        if (quick ? i != turn % 3 : !mine) {
            continue;
        }
        struct test_case c = attention(spec);
        c.dim[DIM_B] = 1;
        c.dim[DIM_Q] = 77;
        c.dim[DIM_KV] = 150;
        c.dim[DIM_D] = DIMS[i][0];
        c.dim[DIM_D_V] = DIMS[i][1];
        c.may_refuse = DIMS[i][0] < 16 || DIMS[i][0] > 256 || DIMS[i][1] > 256;
        add_pair(list, &c);
    }
}

static void group_layouts(struct case_list *list, const struct spec_row *spec, bool quick)
{
    struct test_case c = attention(spec);
    c.dim[DIM_Q] = 100;
    c.dim[DIM_KV] = quick ? 101 : 150;
    struct test_case *added = case_add(list, &c);
    for (int layout = 0; added && layout < LAYOUT_COUNT; layout++) {
        const bool bf16 = !quick || layout == LAYOUT_COMPACT || layout == LAYOUT_MISALIGNED;
        const bool f16 = !quick || layout == LAYOUT_PADDED;
        if (bf16) {
            add_run(added, LATHE_BF16, layout);
        }
        if (f16) {
            add_run(added, LATHE_F16, layout);
        }
    }
}

/* Products of f32 are three of bf16: values with all of their digits. */
static void group_f32(struct case_list *list, const struct spec_row *spec, bool quick)
{
    static const int SIZE[][4] = {
        /* q, kv, d, d_v */ {100, 150, 64, 64}, {130, 130, 128, 128}, {65, 200, 72, 256}};
    for (int i = 0; i < (quick ? 1 : 3); i++) {
        struct test_case c = attention(spec);
        c.rounding = LATHE_F32;
        c.may_refuse = spec_values_in_keys(spec); /* gradients of it are of f16 and bf16 */
        c.dim[DIM_Q] = SIZE[i][0];
        c.dim[DIM_KV] = SIZE[i][1];
        c.dim[DIM_D] = SIZE[i][2];
        c.dim[DIM_D_V] = SIZE[i][3];
        struct test_case *added = sizes_fit(&c) ? case_add(list, &c) : NULL;
        if (added) {
            add_run(added, LATHE_F32, list->n % REGULAR_LAYOUTS);
            add_run(added, LATHE_F32, LAYOUT_MISALIGNED);
        }
    }
}

static bool has_infinite(const struct spec_row *spec)
{
    for (int i = 0; i < spec->n_args; i++) {
        if (spec->arg[i].may_be_infinite) {
            return true;
        }
    }
    return false;
}

static void group_data(struct case_list *list, const struct spec_row *spec, bool quick)
{
    for (int kind = 0; kind < 5; kind++) {
        struct test_case c = attention(spec);
        c.dim[DIM_Q] = 140;
        c.dim[DIM_KV] = 200;
        c.skewed = kind == 0;
        c.infinite = kind == 1 || kind == 4;
        c.broadcast = kind == 2 || kind == 4;
        c.absent = kind == 3;
        if ((c.infinite && !has_infinite(spec)) || (quick && kind != 0 && kind != 1)) {
            continue;
        }
        add_pair(list, &c);
    }
}

static void group_q_start(struct case_list *list, const struct spec_row *spec, bool quick)
{
    /* q, kv, q_start: start-aligned, a chunk in the middle, before the first key, beyond the last */
    static const int START[][3] = {{64, 257, 100}, {40, 200, 0},   {100, 50, 0},
                                   {60, 100, -20}, {10, 100, 150}, {130, 130, 0}};
    const int n = quick ? 1 : (int)(sizeof START / sizeof START[0]);
    for (int i = 0; i < n; i++) {
        struct test_case c = attention(spec);
        c.dim[DIM_B] = 1;
        c.dim[DIM_Q] = START[i][0];
        c.dim[DIM_KV] = START[i][1];
        c.has_q_start = true;
        c.q_start = START[i][2];
        add_pair(list, &c);
    }
}

/* Rows that a mask value covers whole, in kernels of every kind; also keys in several tiles. */
static void group_masks(struct case_list *list, const struct spec_row *spec, bool quick)
{
    static const int SIZE[][5] = {/* q, kv, d, d_v, absent */
                                  {65, 40, 64, 64, 0},      {1000, 900, 64, 64, 0},  {65, 40, 128, 128, 1},
                                  {1000, 900, 128, 128, 1}, {300, 200, 192, 192, 0}, {130, 130, 72, 40, 0}};
    const int n = quick ? 1 : (int)(sizeof SIZE / sizeof SIZE[0]);
    for (int i = 0; i < n; i++) {
        struct test_case c = attention(spec);
        c.dim[DIM_B] = 1;
        c.dim[DIM_H] = 2;
        c.dim[DIM_H_KV] = 1;
        c.dim[DIM_Q] = SIZE[i][0];
        c.dim[DIM_KV] = SIZE[i][1];
        c.dim[DIM_D] = SIZE[i][2];
        c.dim[DIM_D_V] = SIZE[i][3];
        c.absent = SIZE[i][4] != 0;
        add_pair(list, &c);
    }
}

/* Latent attention: absorbed, of 1 to 4 tokens; parts, and narrower ones of which no part is a whole slice.
 */
static void group_mla(struct case_list *list, const struct spec_row *spec, bool quick)
{
    static const int SIZE[][7] = {/* b, h, h_kv, q, kv, d, d_v */
                                  {2, 16, 1, 1, 700, 576, 512}, {1, 128, 1, 4, 300, 576, 512},
                                  {3, 32, 1, 2, 65, 576, 512},  {2, 12, 2, 3, 1300, 288, 256},
                                  {1, 4, 1, 70, 150, 320, 24},  {1, 6, 1, 1, 0, 576, 512},
                                  {1, 64, 1, 1, 5000, 576, 512}};
    for (int i = 0; i < (spec_values_in_keys(spec) ? quick ? 3 : 7 : 0); i++) {
        struct test_case c = attention(spec);
        c.dim[DIM_B] = SIZE[i][0];
        c.dim[DIM_H] = SIZE[i][1];
        c.dim[DIM_H_KV] = SIZE[i][2];
        c.dim[DIM_Q] = SIZE[i][3];
        c.dim[DIM_KV] = SIZE[i][4];
        c.dim[DIM_D] =
            SIZE[i][5] - (strcmp(spec->name, "mla_decoupled") == 0 ? 64 : 0); /* its second pair's */
        c.dim[DIM_D_V] = SIZE[i][6];
        add_pair(list, &c);
    }
}

/* Head dims that are no multiple of 8, which specs with mods refuse. */
static void group_odd(struct case_list *list, const struct spec_row *spec, bool quick)
{
    static const char *const NAME[] = {"full", "causal", "alibi", "document", "relative_bias", "sinks"};
    static const int SIZE[][4] = {/* q, kv, d, d_v */
                                  {130, 130, 100, 100},
                                  {65, 200, 100, 64},
                                  {70, 30, 64, 50},
                                  {33, 300, 250, 255}};
    for (size_t i = 0; i < sizeof NAME / sizeof *NAME; i++)
        for (int k = 0; k < (quick ? 1 : 4) && strcmp(NAME[i], spec->name) == 0; k++) {
            struct test_case c = attention(spec);
            c.dim[DIM_Q] = SIZE[k][0];
            c.dim[DIM_KV] = SIZE[k][1];
            c.dim[DIM_D] = SIZE[k][2];
            c.dim[DIM_D_V] = SIZE[k][3];
            c.absent = k == 2;
            struct test_case *added = sizes_fit(&c) ? case_add(list, &c) : NULL;
            for (int layout = k % 2; added && layout < LAYOUT_COUNT; layout += 2)
                add_run(added, layout % 3 ? LATHE_BF16 : LATHE_F16, layout);
            c.rounding = LATHE_F32;
            added = sizes_fit(&c) && k < 2 ? case_add(list, &c) : NULL;
            if (added)
                add_run(added, LATHE_F32, k ? LAYOUT_MISALIGNED : LAYOUT_COMPACT);
        }
}

/* ---- rowwise --------------------------------------------------------------------------------------- */

static void add_rowwise(struct case_list *list, const struct spec_row *spec, int64_t n, int leading,
                        int64_t rows)
{
    struct test_case c;
    memset(&c, 0, sizeof c);
    c.spec = spec;
    c.dim[DIM_ROWS0] = leading > 2 ? 2 : 1;
    c.dim[DIM_ROWS1] = leading > 1 ? 3 : 1;
    c.dim[DIM_ROWS] = rows;
    c.dim[DIM_N] = n;
    c.leading = leading;
    c.absent = list->n % 5 == 4;
    c.may_refuse = (strcmp(spec->name, "largest") == 0 || strcmp(spec->name, "topk") == 0) &&
                   n > 4096; /* ranks: rows that fit registers */
    c.rounding = LATHE_BF16;
    struct test_case *shared = case_add(list, &c);
    if (shared) {
        add_run(shared, LATHE_BF16, list->n);
        add_run(shared, LATHE_F16, list->n + 2);
        add_run(shared, LATHE_BF16, list->n + 3);
    }
    c.rounding = LATHE_F32;
    struct test_case *single = case_add(list, &c);
    if (single) {
        add_run(single, LATHE_F32, list->n);
        add_run(single, LATHE_F32, list->n + 3);
    }
}

static void group_rowwise(struct case_list *list, const struct spec_row *spec, bool quick)
{
    static const int LENGTH[] = {33, 257, 1025, 1, 31, 64, 255, 1000, 4096, 8192, 65537};
    const int n = quick ? 3 : (int)(sizeof LENGTH / sizeof LENGTH[0]);
    for (int i = 0; i < n; i++) {
        for (int leading = 1; leading <= 3; leading++) {
            if (!quick || leading == 1 + i % 3) {
                add_rowwise(list, spec, LENGTH[i], leading, leading == 1 ? 7 : 2);
            }
        }
    }
    if (!quick) {
        add_rowwise(list, spec, 40, 1, 3001); /* many short rows */
        add_rowwise(list, spec, 600, 2, 300);
        add_rowwise(list, spec, 128, 1,
                    3001); /* more than a device has at once, of rows that wait or come to L2 */
        add_rowwise(list, spec, 384, 1, 301); /* three vectors of a lane */
        add_rowwise(list, spec, 12288, 1, 5);
        add_rowwise(list, spec, 40960, 1, 3);  /* shared by five blocks */
        add_rowwise(list, spec, 131072, 1, 2); /* shared by the blocks of a cluster */
        add_rowwise(list, spec, 100000, 1, 2); /* whose last threads lack a vector */
        add_rowwise(list, spec, 100, 1, 0);
    }
}

/* The same problems in the backward pass, every third one deterministic. */
static void turn_backward(struct case_list *list)
{
    for (int i = 0; i < list->n; i++) {
        list->item[i].pass = LATHE_BACKWARD;
        list->item[i].may_refuse |=
            list->item[i].absent && list->item[i].dim[DIM_D] > 256; /* o is left out */
        list->item[i].deterministic = i % 3 == 2 && !spec_adds_by_head(list->item[i].spec);
    }
}

static void forward_cases(struct case_list *list, const char *group, bool quick)
{
    static const struct {
        const char *name;
        bool rowwise;
        void (*add)(struct case_list *, const struct spec_row *, bool);
    } GROUPS[] = {
        {"lengths", false, group_lengths}, {"unequal", false, group_unequal}, {"heads", false, group_heads},
        {"dims", false, group_dims},       {"layouts", false, group_layouts}, {"data", false, group_data},
        {"q_start", false, group_q_start}, {"rowwise", true, group_rowwise},  {"masks", false, group_masks},
        {"f32", false, group_f32},         {"mla", false, group_mla},         {"odd", false, group_odd}};
    for (size_t g = 0; g < sizeof GROUPS / sizeof GROUPS[0]; g++) {
        for (int i = 0; i < spec_row_count && strcmp(GROUPS[g].name, group) == 0; i++) {
            const bool masks = mask_text(spec_rows[i].name) != NULL;
            if ((spec_rows[i].rowwise != 0) == GROUPS[g].rowwise && masks == (GROUPS[g].add == group_masks)) {
                GROUPS[g].add(list, &spec_rows[i], quick);
            }
        }
    }
}

/* The host device takes one head after the other, a pair at a time, and knows no tiles: of long rows a piece
   is enough for it, of many heads one group. */
static void shorten(struct case_list *list)
{
    enum { LONG = 100000, MOST_PAIRS = 40000 };
    for (int i = 0; i < list->n; i++) {
        const struct test_case *c = &list->item[i];
        int64_t *dim = list->item[i].dim;
        if (c->map || c->spec->rowwise)
            continue;
        if (dim[DIM_Q] * dim[DIM_KV] >= LONG) {
            dim[DIM_B] = dim[DIM_B] > 1 ? 1 : dim[DIM_B];
            dim[DIM_H] /= dim[DIM_H_KV];
            dim[DIM_H_KV] = 1;
        }
        while (!c->has_q_start && dim[DIM_B] * dim[DIM_H] * dim[DIM_Q] * dim[DIM_KV] > MOST_PAIRS) {
            dim[DIM_Q] = (dim[DIM_Q] + 1) / 2;
            dim[DIM_KV] = (dim[DIM_KV] + 1) / 2;
        }
    }
}

static const void *spec_of(const struct test_case *c)
{
    const void *const any = matrix_groups; /* forms of a call, whose specs take turns */
    return c->forms ? any : c->map ? (const void *)c->map->spec : c->spec;
}

/* One case in five of each spec, and one at least: what a dry run tests, that launches and bounds are right,
 * is the same code for all of them. Five shares no factor with the kinds of a list that take turns. Rows take
 * no time. */
static void draw_some(struct case_list *list, uint64_t draw)
{
    enum { EVERY = 5 };
    int kept = 0;
    for (int i = 0, end = 0; i < list->n; i = end, draw++) {
        while (end < list->n && spec_of(&list->item[end]) == spec_of(&list->item[i])) {
            end++;
        }
        const bool rows = list->item[i].spec && list->item[i].spec->rowwise;
        const int every = rows ? 1 : end - i < EVERY ? end - i : EVERY;
        for (int k = i + (int)(draw % (uint64_t)every); k < end; k += every) {
            list->item[kept++] = list->item[k];
        }
    }
    list->n = kept;
}

void cases_of_group(struct case_list *list, const char *group, const struct options *options)
{
    const bool quick = options->quick;
    const bool dry = options->dry;
    const bool backward = strncmp(group, GRAD, strlen(GRAD)) == 0;
    forward_cases(list, backward ? group + strlen(GRAD) : group, quick || dry);
    if (backward) {
        turn_backward(list);
    }
    const bool slow_to_compile = strcmp(group, "packed") == 0; /* which a dry run does not do */
    cases_of_maps(list, backward ? group + strlen(GRAD) : group, backward ? LATHE_BACKWARD : LATHE_FORWARD,
                  quick || (dry && !slow_to_compile));
    cases_of_forms(list, group, quick);
    if (dry) {
        shorten(list);
        draw_some(list, options->draw);
    }
}
