/*
 * places.c: calls that have a part of all keys, or of all heads, on the host device: put together they are
 * the call that has all of them, of every shipped spec of attention that can be cut, in both passes. What
 * cannot be is refused with a sentence.
 */
#include "check.h"
#include "loaded.h"
#include "whole.h"
#include "gen/arguments/input_ranges.h"
#include "gen/gen.h"
#include "gen/ir/spec.h"
#include "gen/ir/tensor.h"
#include "lathe.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { Q = 6, KV = 23, MOST_SHARDS = 4 };

struct bench {
    struct ir *ir;
    struct signature sig[3]; /* by enum lathe_pass */
    int n;
    struct value value[MOST];
    uint64_t random;
    int32_t q_start, kv_start, len_kv, h_start, n_h;
    int32_t kv_chunk, kv_step; /* 0: not given */
    int32_t wrong_kv, wrong_h; /* added to where the part begins */
};

static double unit(void *state)
{
    struct bench *b = state;
    b->random = b->random * 6364136223846793005u + 1442695040888963407u;
    return (double)(b->random >> 11) / 9007199254740992.0;
}

static int64_t size_of(struct sig_dim dim)
{
    static const int64_t size[SYM_FREE] = {
        [SYM_B] = B,   [SYM_SEQS] = B, [SYM_H] = H,   [SYM_H_KV] = H_KV, [SYM_Q] = Q,
        [SYM_KV] = KV, [SYM_D] = D,    [SYM_D_V] = D, [SYM_D2] = D2,
    };
    const int64_t value = dim.literal > 0 ? dim.literal : dim.sym < SYM_FREE ? size[dim.sym] : FREE;
    return value * lathe__times(dim) + dim.plus;
}

static struct value *find(struct bench *b, const char *name)
{
    for (int i = 0; i < b->n; i++)
        if (strcmp(b->value[i].name, name) == 0)
            return &b->value[i];
    return NULL;
}

static void fill(struct bench *b, struct value *v)
{
    int64_t dim[SYM_COUNT];
    for (int i = 0; i < SYM_COUNT; i++)
        dim[i] = size_of((struct sig_dim){.sym = (uint8_t)i});
    for (int i = 0; i < b->ir->n_inputs; i++)
        if (strcmp(b->ir->input[i].name, v->name) == 0 && input_fill(&b->ir->input[i], dim, &v->arg, unit, b))
            return;
    for (int64_t i = 0; i < v->count; i++) {
        const double integer = floor(unit(b) * 3);
        dtype_store(v->arg.dtype, v->arg.data, i,
                    lathe__is_result(&v->is)                                ? (double)NAN
                    : v->arg.dtype == LATHE_I32 || v->arg.dtype == LATHE_U8 ? integer
                    : v->arg.ndim == 0                                      ? 0.25 + unit(b)
                                                                            : unit(b) - 0.5);
    }
}

static bool is_rare(const struct sig_arg *a)
{
    return a->role >= ROLE_Q_START || a->rare || (a->optional && a->role == ROLE_SCALAR);
}

static void add_value(struct bench *b, const struct sig_arg *a)
{
    struct value *v = &b->value[b->n];
    const bool whole = a->dtype == LATHE_I32 || a->dtype == LATHE_U8;
    if (find(b, a->name) || (is_rare(a) && strncmp(a->name, "dlse", 4) != 0))
        return;
    CHECK(b->n < MOST);
    *v = (struct value){.is = *a, .count = 1};
    memcpy(v->name, a->name, sizeof v->name);
    for (int d = 0; d < a->ndim; d++)
        v->count *= v->shape[d] = size_of(a->dim[d]);
    v->arg = (lathe_arg){v->name,
                         malloc((size_t)(v->count + 1) * 8),
                         whole ? (lathe_dtype)a->dtype : LATHE_F64,
                         a->ndim,
                         v->shape,
                         NULL};
    CHECK(v->arg.data != NULL);
    b->n++;
    fill(b, v);
}

static void open_bench(struct bench *b, const char *spec)
{
    memset(b, 0, sizeof *b);
    b->random = 99;
    b->ir = load_spec(spec);
    for (int pass = 0; pass < 3; pass++)
        signature_make(b->ir, (lathe_pass)pass, &b->sig[pass]);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < b->sig[pass].n_args; i++)
            add_value(b, &b->sig[pass].arg[i]);
    b->len_kv = KV;
    b->n_h = H;
    b->q_start = KV - Q;
}

static void close_bench(struct bench *b)
{
    for (int i = 0; i < b->n; i++)
        free(b->value[i].arg.data);
    ir_free(b->ir);
}

/* ---- calls of a part -------------------------------------------------------------------------------- */

struct part {
    int64_t kv0, kv, h0, h; /* keys and query heads from .. of all */
    double *part_o, *part_rows;
    bool sums; /* results are put in place of the whole's, or added to it */
};

struct call {
    int n;
    lathe_arg arg[MOST];
    int64_t shape[MOST][MAX_DIMS], stride[MOST][MAX_DIMS];
};

static void put(struct call *c, const char *name, void *data, lathe_dtype dtype, int ndim,
                const int64_t *shape)
{
    CHECK(c->n < MOST);
    c->arg[c->n++] = (lathe_arg){name, data, dtype, ndim, shape, NULL};
}

/* Of a tensor of the call itself, its part; inputs and their gradients are of all. */
static void put_part(struct call *c, const struct value *v, const struct part *p, double *data)
{
    int64_t stride = 1;
    int64_t first = 0;
    lathe_arg *to = &c->arg[c->n];
    int64_t *const shape = c->shape[c->n];
    CHECK(c->n < MOST);
    for (int d = v->arg.ndim - 1; d >= 0; d--) {
        const struct sig_dim dim = v->is.dim[d];
        const bool whole = dim.whole != SYM_ONE;
        const int group = H / H_KV;
        c->stride[c->n][d] = stride;
        shape[d] = v->shape[d];
        if (!whole && lathe__dim_is(dim, SYM_KV))
            shape[d] = p->kv, first += p->kv0 * stride;
        if (!whole && lathe__dim_is(dim, SYM_H))
            shape[d] = p->h, first += p->h0 * stride;
        if (!whole && lathe__dim_is(dim, SYM_H_KV))
            shape[d] = p->h / group, first += p->h0 / group * stride;
        stride *= v->shape[d];
    }
    *to = v->arg;
    to->data = data ? (void *)data : v->arg.data;
    to->data = (char *)to->data + first * (int64_t)lathe_dtype_size(to->dtype);
    to->shape = shape;
    to->strides = c->stride[c->n++];
}

static void put_places(struct bench *b, struct call *c, const struct part *p)
{
    b->kv_start = (int32_t)p->kv0 + b->wrong_kv;
    b->h_start = (int32_t)p->h0 + b->wrong_h;
    put(c, "q_start", &b->q_start, LATHE_I32, 0, NULL);
    put(c, "kv_start", &b->kv_start, LATHE_I32, 0, NULL);
    put(c, "len_kv", &b->len_kv, LATHE_I32, 0, NULL);
    if (b->kv_chunk)
        put(c, "kv_chunk", &b->kv_chunk, LATHE_I32, 0, NULL);
    if (b->kv_step)
        put(c, "kv_step", &b->kv_step, LATHE_I32, 0, NULL);
    put(c, "h_start", &b->h_start, LATHE_I32, 0, NULL);
    put(c, "n_h", &b->n_h, LATHE_I32, 0, NULL);
}

static lathe_status run(struct bench *b, lathe_pass pass, const struct call *c, lathe_error *err)
{
    *err = (lathe_error){0};
    return pass == LATHE_BACKWARD ? host_backward(b->ir, &b->sig[pass], c->arg, c->n, err)
                                  : host_forward(b->ir, &b->sig[pass], c->arg, c->n, NULL, 0, err);
}

/* All values of a pass; results, of which p says it, into a tensor of their own that is added. */
static lathe_status run_part(struct bench *b, lathe_pass pass, const struct part *p, lathe_error *err)
{
    struct call c = {0};
    double *sum[MOST] = {NULL};
    for (int i = 0; i < b->n; i++) {
        struct value *v = &b->value[i];
        const int arg = lathe__arg_find(&b->sig[pass], v->name, 0);
        if (arg < 0)
            continue;
        const struct sig_arg *a = &b->sig[pass].arg[arg];
        bool by_key = false;
        for (int d = 0; d < a->ndim; d++)
            by_key |= lathe__dim_is(a->dim[d], SYM_KV) && a->dim[d].whole == SYM_ONE;
        if (p && p->part_o && a->unless)
            continue;
        if (p && lathe__is_result(a) && p->sums && !by_key) {
            sum[i] = calloc((size_t)v->count + 1, sizeof(double));
            CHECK(sum[i] != NULL);
        }
        if (p)
            put_part(&c, v, p, sum[i]);
        else
            c.arg[c.n++] = v->arg;
    }
    if (p)
        put_places(b, &c, p);
    const int64_t o_shape[] = {B, H, Q, D}, rows_shape[] = {B, H, Q, b->ir->n_states + 1};
    if (p && p->part_o) {
        put(&c, "part_o", p->part_o, LATHE_F64, 4, o_shape);
        put(&c, "part_rows", p->part_rows, LATHE_F64, 4, rows_shape);
    }
    const lathe_status status = run(b, pass, &c, err);
    for (int i = 0; i < b->n; i++) {
        for (int64_t k = 0; sum[i] && k < b->value[i].count; k++)
            ((double *)b->value[i].arg.data)[k] += sum[i][k];
        free(sum[i]);
    }
    return status;
}

/* ---- the whole beside its parts ----------------------------------------------------------------------- */

static void clear_results(struct bench *b, lathe_pass pass, bool zero)
{
    for (int i = 0; i < b->n; i++) {
        const int arg = lathe__arg_find(&b->sig[pass], b->value[i].name, 0);
        for (int64_t k = 0; arg >= 0 && lathe__is_result(&b->sig[pass].arg[arg]) && k < b->value[i].count;
             k++)
            ((double *)b->value[i].arg.data)[k] = zero ? 0 : (double)NAN;
    }
}

static double *copies[MOST];

static void keep_results(const struct bench *b, lathe_pass pass)
{
    for (int i = 0; i < b->n; i++) {
        const int arg = lathe__arg_find(&b->sig[pass], b->value[i].name, 0);
        const size_t bytes = (size_t)b->value[i].count * sizeof(double);
        copies[i] = NULL;
        if (arg >= 0 && lathe__is_result(&b->sig[pass].arg[arg])) {
            copies[i] = malloc(bytes + 1);
            CHECK(copies[i] != NULL);
            memcpy(copies[i], b->value[i].arg.data, bytes);
        }
    }
}

static void compare_results(const struct bench *b, const char *spec, bool keep)
{
    for (int i = 0; i < b->n; i++) {
        const double *now = b->value[i].arg.data;
        for (int64_t k = 0; copies[i] && k < b->value[i].count; k++) {
            const bool same = now[k] == copies[i][k] || (isnan(now[k]) && isnan(copies[i][k]));
            if (!same && !(fabs(now[k] - copies[i][k]) <= 1e-9 + 1e-9 * fabs(copies[i][k]))) {
                fprintf(stderr, "%s: %s[%lld] is %g, of the whole %g\n", spec, b->value[i].name, (long long)k,
                        now[k], copies[i][k]);
                CHECK(false);
            }
        }
        if (keep && copies[i])
            memcpy(b->value[i].arg.data, copies[i], (size_t)b->value[i].count * sizeof(double));
        free(copies[i]);
        copies[i] = NULL;
    }
}

static void run_whole(struct bench *b, lathe_pass pass, const char *spec)
{
    lathe_error err;
    const lathe_status status = run_part(b, pass, NULL, &err);
    if (status != LATHE_OK)
        fprintf(stderr, "%s: %s\n", spec, err.text);
    CHECK_EQ(status, LATHE_OK);
    keep_results(b, pass);
}

static void expect(lathe_status status, const char *spec, const lathe_error *err)
{
    if (status != LATHE_OK)
        fprintf(stderr, "%s: %s\n", spec, err->text);
    CHECK_EQ(status, LATHE_OK);
}

static const int64_t EDGE[MOST_SHARDS][MOST_SHARDS + 1] = {
    {0, KV}, {0, 9, KV}, {0, 0, 16, KV}, {0, 1, 8, 20, KV}};

static void cut_forward(struct bench *b, const char *spec, int shards)
{
    const size_t o_size = (size_t)B * H * Q * D,
                 rows_size = (size_t)B * H * Q * (size_t)(b->ir->n_states + 1);
    double *os = calloc(o_size * MOST_SHARDS, sizeof *os);
    double *rows = calloc(rows_size * MOST_SHARDS, sizeof *rows);
    lathe_error err;
    struct call c = {0};
    CHECK(os && rows);
    for (int s = 0; s < shards; s++) {
        const struct part p = {EDGE[shards - 1][s],
                               EDGE[shards - 1][s + 1] - EDGE[shards - 1][s],
                               0,
                               H,
                               os + (size_t)s * o_size,
                               rows + (size_t)s * rows_size,
                               false};
        expect(run_part(b, LATHE_FORWARD, &p, &err), spec, &err);
    }
    const int64_t o_shape[] = {shards, B, H, Q, D}, rows_shape[] = {shards, B, H, Q, b->ir->n_states + 1};
    put(&c, "part_o", os, LATHE_F64, 5, o_shape);
    put(&c, "part_rows", rows, LATHE_F64, 5, rows_shape);
    for (int i = 0; i < b->n; i++)
        if (lathe__arg_find(&b->sig[LATHE_COMBINE], b->value[i].name, 0) >= 0)
            c.arg[c.n++] = b->value[i].arg;
    if (lathe__arg_find(&b->sig[LATHE_COMBINE], "q_start", 0) >= 0)
        put(&c, "q_start", &b->q_start, LATHE_I32, 0, NULL);
    expect(run(b, LATHE_COMBINE, &c, &err), spec, &err);
    free(os);
    free(rows);
}

static void cut_keys_backward(struct bench *b, const char *spec, int *refused)
{
    lathe_error err = {0};
    run_whole(b, LATHE_BACKWARD, spec);
    for (int shards = 2; shards <= MOST_SHARDS; shards++) {
        clear_results(b, LATHE_BACKWARD, true);
        for (int s = 0; s < shards; s++) {
            const struct part p = {
                EDGE[shards - 1][s], EDGE[shards - 1][s + 1] - EDGE[shards - 1][s], 0, H, NULL, NULL, true};
            const lathe_status status = run_part(b, LATHE_BACKWARD, &p, &err);
            if (status == LATHE_UNSUPPORTED) {
                CHECK_HAS(err.text, "kv_start: ");
                ++*refused;
                for (int i = 0; i < b->n; i++)
                    free(copies[i]);
                return;
            }
            expect(status, spec, &err);
        }
        compare_results(b, spec, false);
        if (shards < MOST_SHARDS)
            run_whole(b, LATHE_BACKWARD, spec);
    }
}

static void cut_heads(struct bench *b, const char *spec, lathe_pass pass)
{
    lathe_error err;
    run_whole(b, pass, spec);
    clear_results(b, pass, true);
    for (int64_t h = 0; h < H; h += 2) {
        const struct part p = {0, KV, h, 2, NULL, NULL, true};
        expect(run_part(b, pass, &p, &err), spec, &err);
    }
    compare_results(b, spec, true);
}

/* ---- every shipped spec ---------------------------------------------------------------------------------
 */

TEST(every_spec_cut_by_keys_is_the_whole)
{
    static char name[MOST_SPECS][64];
    const int n = list_shipped(name, KIND_ATTENTION);
    int cut = 0;
    int refused = 0;
    for (int i = 0; i < n; i++) {
        struct bench b;
        open_bench(&b, name[i]);
        const bool parts = !b.sig[LATHE_COMBINE].no_parts[0];
        for (int shards = 1; shards <= MOST_SHARDS && parts; shards++) {
            run_whole(&b, LATHE_FORWARD, name[i]);
            clear_results(&b, LATHE_FORWARD, false);
            cut_forward(&b, name[i], shards);
            compare_results(&b, name[i], true);
        }
        cut += parts;
        if (parts)
            cut_keys_backward(&b, name[i], &refused);
        close_bench(&b);
    }
    printf("  %d specs of attention, %d with parts, the backward pass of %d refused\n", n, cut, refused);
    CHECK(cut >= 20 && refused <= 3);
}

TEST(every_spec_cut_by_heads_is_the_whole)
{
    static char name[MOST_SPECS][64];
    const int n = list_shipped(name, KIND_ATTENTION);
    for (int i = 0; i < n; i++) {
        struct bench b;
        open_bench(&b, name[i]);
        cut_heads(&b, name[i], LATHE_FORWARD);
        cut_heads(&b, name[i], LATHE_BACKWARD);
        close_bench(&b);
    }
}

/* ---- what is refused --------------------------------------------------------------------------------------
 */

static void refuse_part(struct bench *b, const struct part *p, const char *text)
{
    lathe_error err;
    CHECK_EQ(run_part(b, LATHE_FORWARD, p, &err), LATHE_ARG);
    CHECK_HAS(err.text, text);
    close_bench(b);
}

static void refuse(int32_t kv, int32_t h, int32_t len_kv, int32_t n_h, const char *text)
{
    struct bench b;
    open_bench(&b, "document");
    b.wrong_kv = kv;
    b.wrong_h = h;
    b.len_kv = len_kv;
    b.n_h = n_h;
    refuse_part(&b, &(struct part){0, KV, 0, 2, NULL, NULL, false}, text);
}

TEST(wrong_places_have_their_sentence)
{
    refuse(3, 0, KV, H,
           "argument 'kv_start': expected from 0 to 0, with kv=23 of len_kv=23 in this call, given 3");
    refuse(0, 0, KV - 2, H, "argument 'len_kv': expected 23, the size of an input, given 21");
    refuse(0, 3, KV, H, "argument 'h_start': expected from 0 to 2, with h=2 of n_h=4 in this call, given 3");
    refuse(0, 1, KV, H,
           "argument 'h_start': expected a multiple of the 2 query heads of a key head, given 1");
    refuse(0, 1, KV, 5, "argument 'n_h': expected a multiple of h / h_kv = 2, given 5");
}

static void refuse_chunks(int32_t chunk, int32_t step, const char *text)
{
    struct bench b;
    open_bench(&b, "document");
    b.kv_chunk = chunk;
    b.kv_step = step;
    refuse_part(&b, &(struct part){0, 12, 0, H, NULL, NULL, false}, text);
}

TEST(wrong_chunks_have_their_sentence)
{
    const int32_t number = 4;
    struct bench b;
    lathe_error err;
    refuse_chunks(4, 0, "argument 'kv_chunk': expected 'kv_step' beside it");
    refuse_chunks(0, 4, "argument 'kv_step': expected 'kv_chunk' beside it");
    refuse_chunks(-4, 8, "expected 'kv_chunk', 1 or more, keys or more, given kv_step=8 and kv_chunk=-4");
    refuse_chunks(4, 3, "expected 'kv_chunk', 1 or more, keys or more, given kv_step=3 and kv_chunk=4");
    refuse_chunks(
        4, 10,
        "argument 'kv_start': expected that the last of 12 keys, in chunks of 4 every 10, is one of "
        "len_kv=23, given kv_start=0, where it is key 23");
    open_bench(&b, "document"); /* its last key is one of all, and its first is not */
    const struct part ahead = {0, 12, 0, H, NULL, NULL, false};
    b.kv_chunk = 4;
    b.kv_step = 8;
    b.wrong_kv = -1;
    CHECK_EQ(run_part(&b, LATHE_FORWARD, &ahead, &err), LATHE_ARG);
    CHECK_HAS(err.text, "argument 'kv_start': expected 0 or more, given -1");
    close_bench(&b);
    open_bench(&b, "causal");
    struct call c = {0};
    for (int i = 0; i < b.n; i++)
        if (lathe__arg_find(&b.sig[LATHE_FORWARD], b.value[i].name, 0) >= 0)
            c.arg[c.n++] = b.value[i].arg;
    put(&c, "kv_chunk", (void *)(uintptr_t)&number, LATHE_I32, 0, NULL);
    put(&c, "kv_step", (void *)(uintptr_t)&number, LATHE_I32, 0, NULL);
    CHECK_EQ(run(&b, LATHE_FORWARD, &c, &err), LATHE_ARG);
    CHECK_HAS(err.text, "argument 'kv_chunk': expected 'kv_start' and 'len_kv' beside it");
    close_bench(&b);
}
