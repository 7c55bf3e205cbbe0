/*
 * host_pages_back.c: gradients of keys and values in pages, on the host device: those of tensors with a place
 * for each key, where the keys lie, and their sum where several sequences have a page in common. What no key
 * in use lies in gets 0.
 */
#include "check.h"
#include "loaded.h"
#include "gen/gen.h"
#include "pages_call.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { KEYS = 40, MOST_KEYS = 256, POOL_ROWS = 1300 };
static const char TEXT[] = "return attention {\n"
                           "  inputs = { bias = tensor('f32', 'h', 'kv', { grad = true }), own = "
                           "tensor('f32', 'b', 'kv', { grad = true }),\n"
                           "             slope = tensor('f32', 'b', { grad = true }) },\n"
                           "  mask_mod = causal,\n"
                           "  key_mod = function(k, at) return k * (1 + 0.01 * at.pos) end,\n"
                           "  value_mod = function(v, at) return v * v * (1 - 0.01 * at.pos) end,\n"
                           "  score_mod = function(s, at, x)\n"
                           "    return s + x.bias(at.h, at.kv) * x.own(at.b, at.kv) + x.slope(at.b) * (at.q "
                           "- at.kv) + 0.1 * at.n_b\n"
                           "  end,\n"
                           "}\n";

enum form { IN_ROWS, IN_PAGES, PACKED };
enum { K, V, TENSORS };

/* A call, with the same keys in rows and in pages; what it makes comes from all of its forms. */
struct bench {
    struct ir *ir;
    struct signature sig;
    struct paged p;
    double q[H * SEQS * Q * D], dout[H * SEQS * Q * D], dq[H * SEQS * Q * D];
    double rows[TENSORS][SEQS * H_KV * MOST_KEYS * D], drows[TENSORS][SEQS * H_KV * MOST_KEYS * D];
    double pages_of[TENSORS][POOL_ROWS * H_KV * D], dpages[TENSORS][POOL_ROWS * H_KV * D];
    double bias[H * MOST_KEYS], own[SEQS * MOST_KEYS], slope[SEQS];
    double dbias[H * MOST_KEYS], down[SEQS * MOST_KEYS], dslope[SEQS];
    int32_t table[SEQS * MOST_KEYS], cu[SEQS + 1];
};

/* Where key `token` of sequence s lies; -1: it is not in use. */
static int64_t place_of_key(const struct bench *b, int64_t s, int64_t h, int64_t token)
{
    return token < b->p.used[s]
               ? paged_place(&b->p, b->table[s * b->p.most + token / b->p.page], h, token % b->p.page)
               : -1;
}

static void fill(double *x, size_t n, double step)
{
    for (size_t i = 0; i < n; i++)
        x[i] = sin(step * (double)i + step);
}

/* The first `shared` pages of sequence 2 are those of sequence 0. */
static void open_bench(struct bench *b, int64_t page, bool by_token, int64_t shared)
{
    memset(b, 0, sizeof *b);
    b->ir = load_signed(TEXT, LATHE_BACKWARD, &b->sig);
    paged_open(&b->p, KEYS, page, by_token);
    for (int s = 0; s <= SEQS; s++)
        b->cu[s] = s * Q;
    for (int64_t s = 0; s < SEQS; s++)
        for (int64_t m = 0; m < b->p.most; m++)
            b->table[s * b->p.most + m] = m * page >= b->p.used[s] ? -5
                                          : s == 2 && m < shared   ? (int32_t)(1 + m * SEQS)
                                                                   : (int32_t)(1 + m * SEQS + s);
    fill(b->q, sizeof b->q / sizeof *b->q, 0.7);
    fill(b->dout, sizeof b->q / sizeof *b->q, 1.1);
    fill(b->bias, sizeof b->bias / sizeof *b->bias, 0.3);
    fill(b->own, sizeof b->own / sizeof *b->own, 0.9);
    fill(b->slope, SEQS, 0.1);
    for (int t = 0; t < TENSORS; t++) {
        fill(b->pages_of[t], sizeof b->pages_of[t] / sizeof(double), 1.3 + t);
        for (int64_t i = 0; i < SEQS * H_KV * b->p.kv; i++) {
            const int64_t from = place_of_key(b, i / b->p.kv / H_KV, i / b->p.kv % H_KV, i % b->p.kv);
            for (int d = 0; d < D; d++)
                b->rows[t][i * D + d] = from < 0 ? (double)NAN : b->pages_of[t][from + d];
        }
    }
}

static void set_args(struct bench *b, enum form form)
{
    const int64_t queries[4] = {form == PACKED ? 1 : SEQS, H, form == PACKED ? SEQS * Q : Q, D};
    const int64_t in_packed[4] = {Q * D, SEQS * Q * D, D, 1}; /* one memory for both */
    const bool paged = form != IN_ROWS;
    const int64_t keys[4] = {SEQS, H_KV, b->p.kv, D};
    const int64_t in_rows[4] = {H_KV * b->p.kv * D, b->p.kv * D, D, 1};
    double *const of_rows[] = {b->rows[K], b->rows[V], b->drows[K], b->drows[V]};
    double *const of_pages[] = {b->pages_of[K], b->pages_of[V], b->dpages[K], b->dpages[V]};
    b->p.n = 0;
    memset(b->dpages, 0xff, sizeof b->dpages); /* NaN */
    memset(b->drows, 0xff, sizeof b->drows);
    paged_add_strided(&b->p, "q", b->q, queries, in_packed);
    paged_add_strided(&b->p, "do", b->dout, queries, in_packed);
    paged_add_strided(&b->p, "dq", b->dq, queries, in_packed);
    for (int t = 0; t < 4; t++) {
        static const char *const NAME[] = {"k", "v", "dk", "dv"};
        if (paged)
            paged_add_pool(&b->p, NAME[t], of_pages[t]);
        else
            paged_add_strided(&b->p, NAME[t], of_rows[t], keys, in_rows);
    }
    paged_add(&b->p, "bias", b->bias, LATHE_F64, 2, (int64_t[]){H, b->p.kv});
    paged_add(&b->p, "dbias", b->dbias, LATHE_F64, 2, (int64_t[]){H, b->p.kv});
    paged_add(&b->p, "own", b->own, LATHE_F64, 2, (int64_t[]){SEQS, b->p.kv});
    paged_add(&b->p, "down", b->down, LATHE_F64, 2, (int64_t[]){SEQS, b->p.kv});
    paged_add(&b->p, "slope", b->slope, LATHE_F64, 1, (int64_t[]){SEQS});
    paged_add(&b->p, "dslope", b->dslope, LATHE_F64, 1, (int64_t[]){SEQS});
    paged_add(&b->p, "used_kv", b->p.used, LATHE_I32, 1, (int64_t[]){SEQS});
    if (paged)
        paged_add(&b->p, "pages", b->table, LATHE_I32, 2, (int64_t[]){SEQS, b->p.most});
    if (form == PACKED)
        paged_add(&b->p, "cu_q", b->cu, LATHE_I32, 1, (int64_t[]){SEQS + 1});
}

static void run_well(struct bench *b)
{
    lathe_error err = {.status = LATHE_OK};
    const lathe_status status = host_backward(b->ir, &b->sig, b->p.arg, b->p.n, &err);
    CHECK_STR(err.text, "");
    CHECK_EQ(status, LATHE_OK);
}

/* Pools of what rows have, in the order of the sequences; other elements of them are 0. */
static void check_pools(const struct bench *b)
{
    static double sum[POOL_ROWS * H_KV * D];
    for (int t = 0; t < TENSORS; t++) {
        memset(sum, 0, sizeof sum);
        for (int64_t i = 0; i < SEQS * H_KV * b->p.kv; i++) {
            const int64_t to = place_of_key(b, i / b->p.kv / H_KV, i / b->p.kv % H_KV, i % b->p.kv);
            for (int d = 0; d < D && to >= 0; d++)
                sum[to + d] += b->drows[t][i * D + d];
        }
        for (int64_t i = 0; i < b->p.pool * H_KV * b->p.page * D; i++)
            CHECK(b->dpages[t][i] == sum[i]);
        CHECK(sum[paged_place(&b->p, 1, 0, 0)] != 0);
    }
}

static void compare(int64_t page, bool by_token, int64_t shared)
{
    static struct bench b;
    static struct bench in_rows;
    open_bench(&b, page, by_token, shared);
    set_args(&b, IN_ROWS);
    run_well(&b);
    memcpy(&in_rows, &b, sizeof b);
    for (enum form form = IN_PAGES; form <= PACKED; form++) {
        set_args(&b, form);
        run_well(&b);
        memcpy(b.drows, in_rows.drows, sizeof b.drows);
        check_pools(&b);
        CHECK(memcmp(b.dq, in_rows.dq, sizeof b.dq) == 0);
        CHECK(memcmp(b.dbias, in_rows.dbias, sizeof b.dbias) == 0);
        CHECK(memcmp(b.down, in_rows.down, sizeof b.down) == 0);
        CHECK(memcmp(b.dslope, in_rows.dslope, sizeof b.dslope) == 0);
    }
    ir_free(b.ir);
}

TEST(gradients_lie_where_keys_do)
{
    static const int64_t size[] = {1, 3, 16, 64, 256};
    for (int i = 0; i < 5; i++) {
        compare(size[i], false, 0);
        compare(size[i], true, 0);
    }
}

TEST(sequences_that_share_a_page_add_to_it)
{
    compare(1, false, 7);
    compare(3, true, 4);
    compare(16, false, 2);
    compare(16, true, 1);
    compare(64, false, 1);
}

static uint32_t bits_of(double x)
{
    const float single = (float)x;
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    return bits & 0xffff0000u; /* of a bf16 */
}

static double value_of(uint32_t bits)
{
    float single;
    memcpy(&single, &bits, sizeof single);
    return (double)single;
}

static union {
    uint16_t half[POOL_ROWS * H_KV * D];
    uint32_t single[POOL_ROWS * H_KV * D];
} narrow[24];

/* Arguments as bf16, those of inputs as f32; or doubles that have such values. */
static void use_halves(struct bench *b, bool as_doubles)
{
    for (int i = 0; i < b->p.n; i++) {
        double *from = b->p.arg[i].data;
        const bool half = b->p.arg[i].ndim == 4;
        int64_t n = 1;
        for (int d = 0; d < b->p.arg[i].ndim; d++)
            n *= b->p.arg[i].shape[d];
        if (b->p.arg[i].dtype != LATHE_F64)
            continue;
        for (int64_t k = 0; k < n; k++) {
            const uint32_t bits = bits_of(from[k]);
            if (as_doubles)
                from[k] = value_of(bits);
            else if (half)
                narrow[i].half[k] = (uint16_t)(bits >> 16);
            else
                narrow[i].single[k] = bits;
        }
        if (as_doubles)
            continue;
        b->p.arg[i].dtype = half ? LATHE_BF16 : LATHE_F32;
        b->p.arg[i].data = &narrow[i];
    }
}

static void check_rounded_once(const uint16_t *half, const double *exact, int64_t n)
{
    int64_t shared = 0;
    for (int64_t i = 0; i < n; i++) {
        int exponent;
        (void)frexp(exact[i], &exponent);
        const double half_step = ldexp(1, exponent - 9);
        CHECK(fabs(value_of((uint32_t)half[i] << 16) - exact[i]) <= half_step + 1e-6);
        shared += exact[i] != 0;
    }
    CHECK(shared > n / 4);
}

/* Results of fewer bits are rounded once, and not by sequence. */
TEST(sums_of_a_page_are_rounded_once)
{
    static struct bench b;
    static double exact[TENSORS][POOL_ROWS * H_KV * D];
    enum { DK = 5, DV = 6 }; /* among the arguments */
    open_bench(&b, 16, false, 2);
    set_args(&b, IN_PAGES);
    use_halves(&b, true);
    set_args(&b, IN_PAGES);
    run_well(&b);
    memcpy(exact, b.dpages, sizeof exact);
    use_halves(&b, false);
    run_well(&b);
    CHECK_STR(b.p.arg[DK].name, "dk");
    check_rounded_once(narrow[DK].half, exact[K], b.p.pool * H_KV * b.p.page * D);
    check_rounded_once(narrow[DV].half, exact[V], b.p.pool * H_KV * b.p.page * D);
    ir_free(b.ir);
}

/* k and v as numbers of 8 bits, or doubles that have such values. */
static void use_codes(struct bench *b, bool as_doubles)
{
    static uint8_t codes[TENSORS][POOL_ROWS * H_KV * D];
    static const lathe_dtype DTYPE[TENSORS] = {LATHE_F8_E4M3, LATHE_I8};
    enum { FIRST = 3 }; /* among the arguments */
    for (int t = 0; t < TENSORS; t++) {
        lathe_arg *const a = &b->p.arg[FIRST + t];
        double *const from = a->data;
        CHECK_STR(a->name, t == K ? "k" : "v");
        for (int64_t i = 0; i < b->p.pool * H_KV * b->p.page * D; i++) {
            dtype_store(DTYPE[t], codes[t], i, from[i]);
            if (as_doubles)
                from[i] = dtype_load(DTYPE[t], codes[t], i);
        }
        if (as_doubles)
            continue;
        a->dtype = DTYPE[t];
        a->data = codes[t];
    }
}

/* Of pages of 8 bits: those of the numbers that are stored, in the dtype of q. */
TEST(gradients_of_pages_of_8_bits_have_the_dtype_of_q)
{
    static struct bench b;
    static struct bench exact;
    for (int form = IN_PAGES; form <= PACKED; form++) {
        open_bench(&b, 16, form == PACKED, 2);
        set_args(&b, (enum form)form);
        for (int64_t i = 0; i < POOL_ROWS * H_KV * D; i++)
            b.pages_of[V][i] *= 5; /* whole numbers of more than one bit */
        use_codes(&b, true);       /* codes of such values are those of the first ones */
        memcpy(&exact, &b, sizeof b);
        set_args(&exact, (enum form)form);
        run_well(&exact);
        set_args(&b, (enum form)form);
        use_codes(&b, false);
        run_well(&b);
        CHECK(memcmp(b.dpages, exact.dpages, sizeof b.dpages) == 0);
        CHECK(memcmp(b.dq, exact.dq, sizeof b.dq) == 0);
        ir_free(b.ir);
    }
}
