/*
 * host_sequences.c: packed sequences of attention, and batches of which not all keys are in use, on the host
 * device: bit for bit what a call for each sequence gives, both passes, all gradients. Wrong lists get their
 * sentence. A bench holds every argument of both passes in f64; calls of one sequence are views of it.
 */
#include "check.h"
#include "loaded.h"
#include "gen/gen.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { H = 4, H_KV = 2, D = 8, MOST_ARGS = 40, MOST_SEQS = 4 };
static const char TEXT[] =
    "local function same(at, x) return eq(x.doc(at.b, max(at.q, 0)), x.doc(at.b, at.kv)) end\n"
    "return attention {\n"
    "  inputs = { doc = tensor('i32', 'b', 'kv'), slope = tensor('f32', 'b', 'h', { grad = true }),\n"
    "             bias = tensor('f32', 'h', 'kv', { grad = true }),\n"
    "             gain = tensor('f32', 'b', 'q', { grad = true }) },\n"
    "  mask_mod = both(causal, same),\n"
    "  key_mod = function(k, at) return k * (1 + 0.01 * at.pos) end,\n"
    "  score_mod = function(s, at, x)\n"
    "    return s * x.gain(at.b, at.row) + x.slope(at.b, at.h) * (at.q - at.kv) + x.bias(at.h, at.kv) +\n"
    "           0.01 * at.len_q + 0.02 * at.len_kv\n"
    "  end,\n"
    "}\n";

struct bench {
    struct ir *ir;
    struct signature sig[2];
    bool packed;
    int seqs, q, kv;
    int32_t cu[2][MOST_SEQS + 1], used[MOST_SEQS];
    int n;
    lathe_arg arg[MOST_ARGS];
    struct sig_arg is[MOST_ARGS];
    int64_t shape[MOST_ARGS][MAX_DIMS];
    lathe_error err;
};

static int64_t size_of(const struct bench *b, struct sig_dim dim)
{
    const int64_t value = dim.sym == SYM_B      ? (b->packed ? 1 : b->seqs)
                          : dim.sym == SYM_SEQS ? b->seqs
                          : dim.sym == SYM_H    ? H
                          : dim.sym == SYM_H_KV ? H_KV
                          : dim.sym == SYM_Q    ? b->q
                          : dim.sym == SYM_KV   ? b->kv
                                                : D;
    return value + dim.plus;
}

static int find(const struct bench *b, const char *name)
{
    for (int i = 0; i < b->n; i++)
        if (strcmp(b->arg[i].name, name) == 0)
            return i;
    return -1;
}

static void add_arg(struct bench *b, const struct sig_arg *a)
{
    if (find(b, a->name) >= 0 || a->role >= ROLE_Q_START || strcmp(a->name, "pages") == 0 ||
        strncmp(a->name, "part_", 5) == 0 || (!b->packed && strncmp(a->name, "cu_", 3) == 0))
        return;
    CHECK(b->n < MOST_ARGS);
    lathe_arg *t = &b->arg[b->n];
    int64_t count = 1;
    for (int d = 0; d < a->ndim; d++)
        count *= b->shape[b->n][d] = size_of(b, a->dim[d]);
    *t = (lathe_arg){a->name, NULL,           a->dtype == LATHE_I32 ? LATHE_I32 : LATHE_F64,
                     a->ndim, b->shape[b->n], NULL};
    t->data = malloc((size_t)(count + 1) * sizeof(double));
    CHECK(t->data != NULL);
    b->is[b->n++] = *a;
    for (int64_t i = 0; i < count; i++)
        if (strcmp(a->name, "doc") == 0)
            ((int32_t *)t->data)[i] = (int32_t)(i / 3);
        else if (t->dtype == LATHE_F64)
            ((double *)t->data)[i] = lathe__is_result(a) ? (double)NAN : sin(b->n + 1.7 * (double)i);
    const void *list = strcmp(a->name, "cu_q") == 0      ? b->cu[0]
                       : strcmp(a->name, "cu_kv") == 0   ? b->cu[1]
                       : strcmp(a->name, "used_kv") == 0 ? b->used
                                                         : NULL;
    if (list)
        memcpy(t->data, list, (size_t)count * sizeof(int32_t));
}

static void open_bench(struct bench *b)
{
    b->ir = load_spec(TEXT);
    CHECK(b->ir != NULL);
    for (int pass = 0; pass < 2; pass++)
        signature_make(b->ir, pass ? LATHE_BACKWARD : LATHE_FORWARD, &b->sig[pass]);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < b->sig[pass].n_args; i++)
            add_arg(b, &b->sig[pass].arg[i]);
}

static void close_bench(struct bench *b)
{
    for (int i = 0; i < b->n; i++)
        free(b->arg[i].data);
    ir_free(b->ir);
}

/* Is it one of these words? */
static bool is_among(const char *words, const char *name)
{
    const size_t size = strlen(name);
    for (const char *at = words; (at = strstr(at, name)) != NULL; at++)
        if ((at == words || at[-1] == ' ') && (at[size] == ' ' || at[size] == 0))
            return true;
    return false;
}

/* The arguments that a pass knows, but for lists that `without` names. */
static int select_args(const struct bench *b, int pass, const char *without, lathe_arg *out)
{
    int n = 0;
    for (int i = 0; i < b->n; i++)
        for (int k = 0; k < b->sig[pass].n_args; k++)
            if (strcmp(b->sig[pass].arg[k].name, b->arg[i].name) == 0 && !is_among(without, b->arg[i].name))
                out[n++] = b->arg[i];
    return n;
}

static lathe_status run(struct bench *b, int pass, lathe_arg *args, int n)
{
    b->err = (lathe_error){0};
    return pass ? host_backward(b->ir, &b->sig[1], args, n, &b->err)
                : host_forward(b->ir, &b->sig[0], args, n, NULL, 0, &b->err);
}

/* Sequence s of a tensor: where it begins, and its shape; strides are those of the whole. */
static int64_t part_of(const struct bench *b, int i, int s, int64_t *shape, int64_t *stride)
{
    int64_t first = 0;
    int64_t step = 1;
    for (int d = b->arg[i].ndim - 1; d >= 0; d--) {
        const int sym = b->is[i].dim[d].sym;
        stride[d] = step;
        step *= b->shape[i][d];
        shape[d] = b->shape[i][d];
        if (sym == SYM_SEQS || (sym == SYM_B && !b->packed))
            first += s * stride[d];
        if (sym == SYM_SEQS || sym == SYM_B)
            shape[d] = 1;
        if (sym == SYM_Q || sym == SYM_KV)
            first += b->packed ? b->cu[sym == SYM_KV][s] * stride[d] : 0;
        if (sym == SYM_Q)
            shape[d] = b->packed ? b->cu[0][s + 1] - b->cu[0][s] : b->q;
        if (sym == SYM_KV)
            shape[d] = b->used[s];
    }
    return first;
}

/* The same elements in both, bit for bit; -1: all of them, else the number of the first that differs. */
static int64_t first_difference(const lathe_arg *a, const lathe_arg *b)
{
    int64_t count = 1;
    for (int d = 0; d < a->ndim; d++)
        count *= a->shape[d];
    for (int64_t i = 0; i < count; i++) {
        int64_t at[2] = {0, 0};
        int64_t rest = i;
        for (int d = a->ndim - 1; d >= 0; d--) {
            at[0] += rest % a->shape[d] * a->strides[d];
            at[1] += rest % a->shape[d] * b->strides[d];
            rest /= a->shape[d];
        }
        if (memcmp((double *)a->data + at[0], (double *)b->data + at[1], sizeof(double)) != 0)
            return i;
    }
    return -1;
}

/* Is it the sequence's alone? What all batches share is a sum over them. */
static bool is_own(const struct bench *b, int i)
{
    bool own = false;
    for (int d = 0; d < b->arg[i].ndim; d++) {
        const int sym = b->is[i].dim[d].sym;
        own |= sym == SYM_B || sym == SYM_SEQS || (b->packed && (sym == SYM_Q || sym == SYM_KV));
    }
    return own;
}

/* Results of a call of sequence s alone, in memory of their own, against those of all. */
static void compare_sequence(struct bench *b, int pass, int s, const lathe_arg *args, int n)
{
    lathe_arg one[MOST_ARGS];
    lathe_arg whole[MOST_ARGS];
    int64_t shape[MOST_ARGS][MAX_DIMS];
    int64_t stride[MOST_ARGS][MAX_DIMS];
    double *memory[MOST_ARGS] = {NULL};
    int k = 0;
    for (int i = 0; i < n; i++) {
        const int number = find(b, args[i].name);
        if (strncmp(args[i].name, "cu_", 3) == 0 || strcmp(args[i].name, "used_kv") == 0)
            continue;
        const int64_t first = part_of(b, number, s, shape[k], stride[k]);
        whole[k] = args[i];
        whole[k].shape = shape[k];
        whole[k].strides = stride[k];
        whole[k].data = (char *)args[i].data + first * (args[i].dtype == LATHE_I32 ? 4 : 8);
        one[k] = whole[k];
        if (lathe__is_result(&b->sig[pass].arg[lathe__arg_find(&b->sig[pass], args[i].name, 0)])) {
            memory[k] = calloc(1 << 12, sizeof(double));
            CHECK(memory[k] != NULL);
            one[k].data = memory[k];
        }
        k++;
    }
    CHECK_EQ(run(b, pass, one, k), LATHE_OK);
    CHECK_STR(b->err.text, "");
    for (int i = 0; i < k; i++) {
        if (memory[i] && is_own(b, find(b, one[i].name)) && first_difference(&one[i], &whole[i]) >= 0)
            fprintf(stderr, "sequence %d of %s differs\n", s, one[i].name), CHECK(false);
        free(memory[i]);
    }
}

static void compare(struct bench *b, const char *without)
{
    lathe_arg args[MOST_ARGS];
    open_bench(b);
    for (int pass = 0; pass < 2; pass++) {
        const int n = select_args(b, pass, without, args);
        CHECK_EQ(run(b, pass, args, n), LATHE_OK);
        CHECK_STR(b->err.text, "");
        for (int s = 0; s < b->seqs; s++)
            compare_sequence(b, pass, s, args, n);
    }
}

TEST(packed_sequences_are_calls_of_their_own)
{
    struct bench b = {.packed = true,
                      .seqs = 4,
                      .q = 9,
                      .kv = 11,
                      .cu = {{0, 3, 3, 4, 9}, {0, 2, 5, 5, 11}},
                      .used = {2, 3, 0, 6}};
    compare(&b, "used_kv");
    close_bench(&b);
}

TEST(keys_in_use_of_packed_sequences_are_all_that_count)
{
    struct bench b = {.packed = true,
                      .seqs = 4,
                      .q = 9,
                      .kv = 11,
                      .cu = {{0, 3, 3, 4, 9}, {0, 2, 5, 5, 11}},
                      .used = {1, 0, 0, 4}};
    compare(&b, "");
    const double *dk = b.arg[find(&b, "dk")].data;
    CHECK(dk[1 * D] == 0 && dk[10 * D] == 0 && dk[0] != 0);
    close_bench(&b);
}

TEST(keys_in_use_of_batches_are_all_that_count)
{
    struct bench b = {.seqs = 3, .q = 3, .kv = 5, .used = {5, 0, 2}};
    compare(&b, "");
    close_bench(&b);
}

TEST(one_list_serves_queries_and_keys)
{
    struct bench b = {
        .packed = true, .seqs = 3, .q = 9, .kv = 9, .cu = {{0, 4, 4, 9}, {0, 4, 4, 9}}, .used = {4, 0, 5}};
    compare(&b, "used_kv cu_kv");
    close_bench(&b);
}

/* Rows by their numbers: (h * tokens + token), and of batches ((b * h + head) * q + row). */
TEST(rows_of_packed_sequences_are_numbered_by_token)
{
    struct bench b = {.packed = true,
                      .seqs = 4,
                      .q = 9,
                      .kv = 11,
                      .cu = {{0, 3, 3, 4, 9}, {0, 2, 5, 5, 11}},
                      .used = {2, 3, 0, 6}};
    lathe_arg args[MOST_ARGS];
    double o[H * 9 * D];
    static const int64_t rows[] = {1, 8, 9 + 3, 3 * 9 + 5};
    open_bench(&b);
    const int n = select_args(&b, 0, "used_kv", args);
    CHECK_EQ(run(&b, 0, args, n), LATHE_OK);
    double *data = b.arg[find(&b, "o")].data;
    memcpy(o, data, sizeof o);
    memset(data, 0, sizeof o);
    CHECK_EQ(host_forward(b.ir, &b.sig[0], args, n, rows, 4, &b.err), LATHE_OK);
    for (int r = 0, k = 0; r < H * 9; r++) {
        const bool asked = k < 4 && rows[k] == r;
        for (int d = 0; d < D; d++)
            CHECK(data[r * D + d] == (asked ? o[r * D + d] : 0));
        k += asked;
    }
    close_bench(&b);
}

static void check_refused(int list, const int32_t *values, int64_t n, const char *without,
                          const char *sentence)
{
    static const char *const name[] = {"cu_q", "cu_kv", "used_kv"};
    struct bench b = {.packed = true,
                      .seqs = 4,
                      .q = 9,
                      .kv = 11,
                      .cu = {{0, 3, 3, 4, 9}, {0, 2, 5, 5, 11}},
                      .used = {2, 3, 0, 6}};
    lathe_arg args[MOST_ARGS];
    open_bench(&b);
    for (int pass = 0; pass < 2; pass++) {
        const int n_args = select_args(&b, pass, without, args);
        for (int i = 0; i < n_args; i++) {
            if (strcmp(args[i].name, name[list]) != 0)
                continue;
            args[i].shape = &n;
            memcpy(args[i].data, values, (size_t)n * sizeof *values);
        }
        CHECK_EQ(run(&b, pass, args, n_args), LATHE_ARG);
        CHECK_HAS(b.err.text, sentence);
        const lathe_arg *o = &b.arg[find(&b, pass ? "dq" : "o")];
        CHECK(isnan(((double *)o->data)[0])); /* nothing was written */
    }
    close_bench(&b);
}

TEST(wrong_lists_are_refused)
{
    static const int32_t falls[] = {0, 3, 2, 4, 9}, late[] = {1, 3, 3, 4, 9}, ends[] = {0, 3, 3, 4, 8};
    static const int32_t keys[] = {0, 2, 5, 5, 12}, used[] = {2, 3, 1, 6}, below[] = {2, -1, 0, 6};
    check_refused(0, falls, 5, "",
                  "argument 'cu_q': expected places that do not fall, given 2 behind 3 (sequence 1)");
    check_refused(0, late, 5, "", "argument 'cu_q': expected it to begin at 0, given 1");
    check_refused(0, ends, 5, "", "argument 'cu_q': expected it to end at q=9, given 8");
    check_refused(1, keys, 5, "", "argument 'cu_kv': expected it to end at kv=11, given 12");
    check_refused(1, keys, 4, "", "argument 'cu_kv': expected shape [seqs=4+1], given [4]");
    check_refused(0, late + 1, 0, "cu_kv used_kv", "argument 'cu_q': expected shape");
    check_refused(2, used, 4, "",
                  "argument 'used_kv': expected lengths from 0 to the 0 keys of sequence 2, given 1");
    check_refused(2, below, 4, "",
                  "argument 'used_kv': expected lengths from 0 to the 3 keys of sequence 1, given -1");
    check_refused(0, NULL, 0, "cu_q cu_kv used_kv",
                  "argument 'slope': expected seqs to be b where there is no 'cu_q'");
    check_refused(2, used, 0, "cu_q used_kv",
                  "argument 'slope': expected seqs to be b where there is no 'cu_q'");
    check_refused(2, used, 0, "cu_kv used_kv",
                  "argument 'cu_q': expected it to end at kv=11, given 9; give 'cu_kv'");
}

static double always_first(void *state)
{
    (void)state;
    return 0.0;
}

/* What the list held before has no part in it: every sequence but the last is as empty as the one before. */
TEST(random_lists_begin_at_0)
{
    static const char text[] = "return attention {}";
    struct signature sig;
    int32_t list[4] = {-7, -7, -7, -7};
    int64_t dim[SYM_COUNT] = {0};
    int64_t shape = 4;
    lathe_arg arg = {.name = "cu_q", .data = list, .dtype = LATHE_I32, .ndim = 1, .shape = &shape};
    struct ir *ir = load_signed(text, LATHE_FORWARD, &sig);
    dim[SYM_Q] = 9;
    CHECK(sequences_fill(&sig, dim, &arg, NULL, always_first, NULL));
    CHECK(list[0] == 0 && list[1] == 0 && list[2] == 0);
    CHECK_EQ(list[3], 9);
    ir_free(ir);
}
