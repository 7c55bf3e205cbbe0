/*
 * host_pages.c: keys and values in pages, on the host device: bit for bit what a tensor with a place for each
 * key gives, whatever lies in pages that are not in use and beside the last key. Wrong lists get their
 * sentence, and nothing is written.
 */
#include "check.h"
#include "loaded.h"
#include "gen/base/text.h"
#include "gen/gen.h"
#include "pages_call.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { KEYS = 64, POOL_NUMBERS = 40000 };
static const char TEXT[] =
    "local function same(at, x) return eq(x.doc(at.b, clamp(at.q, 0, at.len_kv - 1)) // 40, x.doc(at.b, "
    "at.kv) // 40) end\n"
    "return attention {\n"
    "  inputs = { doc = tensor('i32', 'b', 'kv'), slope = tensor('f32', 'b', 'h'), bias = tensor('f32', 'h', "
    "'kv'),\n"
    "             gain = tensor('f32', 'b', 'q') },\n"
    "  mask_mod = both(causal, same),\n"
    "  key_mod = function(k, at) return k * (1 + 0.01 * at.pos) end,\n"
    "  score_mod = function(s, at, x)\n"
    "    return s * x.gain(at.b, at.row) + x.slope(at.b, at.h) * (at.q - at.kv) + x.bias(at.h, at.kv) +\n"
    "           0.01 * at.len_q + 0.02 * at.len_kv + 0.1 * at.n_b\n"
    "  end,\n"
    "}\n";

/* Arguments of a call, with the same keys in both forms. */
struct bench {
    struct ir *ir;
    struct signature sig;
    struct paged p;
    double q[SEQS * H * Q * D], gain[SEQS * Q], slope[SEQS * H], bias[H * 300];
    double k[2][SEQS * H_KV * 300 * D]; /* of k and v */
    double paged[2][POOL_NUMBERS];
    int32_t doc[SEQS * 300], pages[SEQS * 300];
    double o[SEQS * H * Q * D], lse[SEQS * H * Q];
    lathe_error err;
};

/* Pages of all sequences take turns; those that hold no key in use are no pages at all. */
static void fill_pages(struct bench *b)
{
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < POOL_NUMBERS; i++)
            b->paged[t][i] = (double)NAN;
    for (int64_t s = 0; s < SEQS; s++)
        for (int64_t m = 0; m < b->p.most; m++) {
            const int64_t number = (m * SEQS + SEQS - 1 - s + 1) % b->p.pool;
            b->pages[s * b->p.most + m] = m * b->p.page < b->p.used[s] ? (int32_t)number : -77;
        }
    for (int64_t i = 0; i < (int64_t)SEQS * H_KV * b->p.kv; i++) {
        const int64_t token = i % b->p.kv;
        const int64_t h = i / b->p.kv % H_KV;
        const int64_t s = i / b->p.kv / H_KV;
        const int64_t to =
            paged_place(&b->p, b->pages[s * b->p.most + token / b->p.page], h, token % b->p.page);
        for (int t = 0; t < 2 && token < b->p.used[s]; t++)
            memcpy(&b->paged[t][to], &b->k[t][i * D], D * sizeof(double));
    }
}

static void open_bench(struct bench *b, int64_t page, bool by_token)
{
    memset(b, 0, sizeof *b);
    b->ir = load_signed(TEXT, LATHE_FORWARD, &b->sig);
    paged_open(&b->p, KEYS, page, by_token);
    for (size_t i = 0; i < sizeof b->q / sizeof *b->q; i++)
        b->q[i] = sin(0.7 * (double)i);
    for (int t = 0; t < 2; t++)
        for (int64_t i = 0; i < (int64_t)SEQS * H_KV * b->p.kv * D; i++)
            b->k[t][i] = sin(1.3 * (double)i + t);
    for (int i = 0; i < SEQS * Q; i++)
        b->gain[i] = 1 + 0.1 * i;
    for (int i = 0; i < H * 300; i++)
        b->bias[i] = cos((double)i);
    for (int i = 0; i < SEQS * H; i++)
        b->slope[i] = 0.01 * i;
    for (int i = 0; i < SEQS * 300; i++)
        b->doc[i] = i;
    fill_pages(b);
}

enum form { DENSE, PAGED, PACKED };

/* Of sequences first .. first + n - 1. */
static void set_args(struct bench *b, enum form form, int64_t first, int64_t n)
{
    const int64_t rows = form == PACKED ? 1 : n;
    const int64_t tokens = form == PACKED ? n * Q : Q;
    const int64_t keys = n * 0 + b->p.kv;
    b->p.n = 0;
    paged_add(&b->p, "q", b->q + first * H * Q * D, LATHE_F64, 4, (int64_t[]){rows, H, tokens, D});
    for (int t = 0; t < 2; t++) {
        const char *name = t ? "v" : "k";
        if (form == DENSE) {
            paged_add(&b->p, name, b->k[t] + first * H_KV * b->p.kv * D, LATHE_F64, 4,
                      (int64_t[]){n, H_KV, keys, D});
            continue;
        }
        paged_add_pool(&b->p, name, b->paged[t]);
    }
    paged_add(&b->p, "o", b->o + first * H * Q * D, LATHE_F64, 4, (int64_t[]){rows, H, tokens, D});
    paged_add(&b->p, "lse", b->lse + first * H * Q, LATHE_F64, 3, (int64_t[]){rows, H, tokens});
    paged_add(&b->p, "doc", b->doc + first * b->p.kv, LATHE_I32, 2, (int64_t[]){n, keys});
    paged_add(&b->p, "slope", b->slope + first * H, LATHE_F64, 2, (int64_t[]){n, H});
    paged_add(&b->p, "bias", b->bias, LATHE_F64, 2, (int64_t[]){H, keys});
    paged_add(&b->p, "gain", b->gain + first * Q, LATHE_F64, 2, (int64_t[]){rows, tokens});
    paged_add(&b->p, "used_kv", b->p.used + first, LATHE_I32, 1, (int64_t[]){n});
    if (form != DENSE)
        paged_add(&b->p, "pages", b->pages + first * b->p.most, LATHE_I32, 2, (int64_t[]){n, b->p.most});
}

static lathe_status run(struct bench *b)
{
    b->err = (lathe_error){0};
    return host_forward(b->ir, &b->sig, b->p.arg, b->p.n, NULL, 0, &b->err);
}

static void run_well(struct bench *b)
{
    const lathe_status status = run(b);
    CHECK_STR(b->err.text, "");
    CHECK_EQ(status, LATHE_OK);
}

static void compare(int64_t page, bool by_token)
{
    static struct bench b;
    static double o[SEQS * H * Q * D], lse[SEQS * H * Q];
    open_bench(&b, page, by_token);
    set_args(&b, DENSE, 0, SEQS);
    run_well(&b);
    memcpy(o, b.o, sizeof o);
    memcpy(lse, b.lse, sizeof lse);
    memset(b.o, 0xff, sizeof b.o);
    set_args(&b, PAGED, 0, SEQS);
    run_well(&b);
    CHECK(memcmp(o, b.o, sizeof o) == 0 && memcmp(lse, b.lse, sizeof lse) == 0);
    CHECK(o[0] != 0 && o[H * Q * D] == 0); /* sequence 1 has no keys */
    ir_free(b.ir);
}

TEST(pages_of_any_size_give_what_keys_in_a_row_give)
{
    static const int64_t size[] = {1, 3, 16, 64, 256};
    for (int i = 0; i < 5; i++) {
        compare(size[i], false);
        compare(size[i], true);
    }
}

/* Packed: q [1, h, tokens, d], so rows of a head are those of all sequences. */
TEST(packed_queries_have_pages_too)
{
    static const int32_t cu[SEQS + 1] = {0, 5, 5, 15}; /* of which sequence 1 has none */
    static struct bench b;
    static double packed[SEQS * H * Q * D];
    open_bench(&b, 3, false);
    set_args(&b, PACKED, 0, SEQS);
    paged_add(&b.p, "cu_q", (void *)cu, LATHE_I32, 1, (int64_t[]){SEQS + 1});
    run_well(&b);
    memcpy(packed, b.o, sizeof packed);
    for (int64_t s = 0; s < SEQS; s += 2) {
        const int64_t tokens = cu[s + 1] - cu[s];
        static double o[H * 10 * D];
        static int64_t stride[4] = {0, SEQS * Q * D, D, 1};
        set_args(&b, PAGED, s, 1);
        for (int i = 0; i < b.p.n; i++)
            if (strcmp(b.p.arg[i].name, "q") == 0) {
                b.p.arg[i].data = b.q + cu[s] * D;
                b.p.arg[i].strides = stride;
                b.p.shape[i][2] = tokens;
            } else if (strcmp(b.p.arg[i].name, "o") == 0) {
                b.p.arg[i].data = o;
                b.p.shape[i][2] = tokens;
            } else if (strcmp(b.p.arg[i].name, "lse") == 0) {
                b.p.shape[i][2] = tokens;
            } else if (strcmp(b.p.arg[i].name, "gain") == 0) {
                b.p.arg[i].data = b.gain + cu[s];
                b.p.shape[i][1] = tokens;
            } else if (strcmp(b.p.arg[i].name, "slope") == 0 || strcmp(b.p.arg[i].name, "doc") == 0) {
                b.p.shape[i][0] = 1;
            }
        b.p.arg[0].strides = stride;
        const lathe_status status = run(&b);
        CHECK_STR(b.err.text, "");
        CHECK_EQ(status, LATHE_OK);
        for (int h = 0; h < H; h++)
            for (int64_t r = 0; r < tokens; r++) /* at.n_b differs, which moves all scores alike */
                for (int d = 0; d < D; d++)
                    CHECK(fabs(o[(h * tokens + r) * D + d] - packed[(h * SEQS * Q + cu[s] + r) * D + d]) <
                          1e-12);
    }
    ir_free(b.ir);
}

static lathe_arg *arg_of(struct bench *b, const char *name)
{
    for (int i = 0; i < b->p.n; i++)
        if (strcmp(b->p.arg[i].name, name) == 0)
            return &b->p.arg[i];
    CHECK(false);
    return NULL;
}

static void check_refused(struct bench *b, const char *sentence)
{
    memset(b->o, 0xff, sizeof b->o);
    CHECK_EQ(run(b), LATHE_ARG);
    CHECK_HAS(b->err.text, sentence);
    for (size_t i = 0; i < sizeof b->o / sizeof *b->o; i++)
        CHECK(isnan(b->o[i]));
}

/* A table that changes while the call runs, as under another thread: here the first rows' lse is written over
   it. Each entry was read once, so o is that of the table as it was. */
TEST(table_is_read_once)
{
    static struct bench b;
    static double o[SEQS * H * Q * D];
    enum { BYTES = SEQS * 300 * 4 };
    FILE *file = tmpfile();
    CHECK(file && ftruncate(fileno(file), BYTES) == 0);
    int32_t *table = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
    void *lse = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0); /* the same bytes */
    CHECK(table != MAP_FAILED && lse != MAP_FAILED);
    open_bench(&b, 16, false);
    set_args(&b, PAGED, 0, SEQS);
    run_well(&b);
    memcpy(o, b.o, sizeof o);
    memcpy(table, b.pages, sizeof b.pages);
    arg_of(&b, "pages")->data = table;
    arg_of(&b, "lse")->data = lse;
    memset(b.o, 0xff, sizeof b.o);
    run_well(&b);
    CHECK(table[1] != b.pages[1]);
    CHECK(memcmp(o, b.o, sizeof o) == 0);
    (void)munmap(table, BYTES);
    (void)munmap(lse, BYTES);
    (void)fclose(file);
    ir_free(b.ir);
}

TEST(wrong_pages_are_refused)
{
    static const int32_t cu[SEQS + 1] = {0, 1, 2, 15};
    static const int64_t two[2] = {2, 4};
    static struct bench b;
    open_bench(&b, 16, false);
    set_args(&b, PAGED, 0, SEQS);
    b.pages[3] = 14;
    check_refused(&b,
                  "argument 'pages': expected pages from 0 to 13, given 14 for keys 48 to 62 of sequence 0");
    b.pages[3] = -1;
    check_refused(&b,
                  "argument 'pages': expected pages from 0 to 13, given -1 for keys 48 to 62 of sequence 0");
    b.pages[3] = 0;
    b.p.used[1] = 65;
    check_refused(&b, "argument 'used_kv': expected lengths from 0 to the 64 keys of sequence 1, given 65");
    b.p.used[1] = 0;
    arg_of(&b, "pages")->shape = two;
    check_refused(&b, "argument 'pages': expected shape [seqs=3,most], given [2,4]");
    set_args(&b, PAGED, 0, SEQS);
    arg_of(&b, "pages")->dtype = LATHE_F32;
    check_refused(&b, "argument 'pages': expected dtype i32, given f32");
    set_args(&b, PAGED, 0, SEQS);
    arg_of(&b, "pages")->data = NULL;
    check_refused(&b, "argument 'k': expected shape");
    set_args(&b, PACKED, 0, SEQS);
    paged_add(&b.p, "cu_q", (void *)cu, LATHE_I32, 1, (int64_t[]){SEQS + 1});
    paged_add(&b.p, "cu_kv", (void *)cu, LATHE_I32, 1, (int64_t[]){SEQS + 1});
    check_refused(&b, "argument 'cu_kv': keys in pages have no places among all keys");
    set_args(&b, PAGED, 0, SEQS);
    memcpy(arg_of(&b, "k")->data, b.paged[0], 0);
    b.p.shape[1][2] = b.p.shape[2][2] = 300;
    arg_of(&b, "k")->strides = arg_of(&b, "v")->strides = NULL;
    check_refused(&b, "argument 'pages': expected pages of 1 to 256 keys, given page=300");
    b.p.shape[1][2] = b.p.shape[2][2] = 0;
    check_refused(&b, "problem: expected page >= 1, given page=0");
    b.p.shape[1][2] = b.p.shape[2][2] = 16;
    b.p.shape[1][0] = b.p.shape[2][0] = 0;
    check_refused(&b, "problem: expected pool >= 1, given pool=0");
    b.p.shape[1][0] = b.p.shape[2][0] = b.p.pool;
    b.p.shape[2][2] = 15;
    check_refused(&b, "argument 'v': expected shape [pool=14,h_kv=2,page=16,d_v], given [14,2,15,8]");
    ir_free(b.ir);
}

/* Of a spec without inputs, whose first list of sequences is the one that differs from the batches. */
TEST(a_wrong_number_of_sequences_is_blamed_on_its_list)
{
    static const int64_t q[] = {3, 2, 1, 8}, k[] = {14, 2, 16, 8}, dense[] = {3, 2, 16, 8}, two[] = {2, 4};
    static const char *const name[] = {"pages", "used_kv"};
    struct signature sig;
    struct problem problem;
    struct ir *ir = load_signed("causal", LATHE_FORWARD, &sig);
    for (int i = 0; i < 2; i++) {
        char sentence[128];
        lathe_error err = {.status = LATHE_OK};
        const lathe_arg arg[] = {{"q", NULL, LATHE_F32, 4, q, NULL},
                                 {"k", NULL, LATHE_F32, 4, i ? dense : k, NULL},
                                 {"v", NULL, LATHE_F32, 4, i ? dense : k, NULL},
                                 {"o", NULL, LATHE_F32, 4, q, NULL},
                                 {name[i], NULL, LATHE_I32, 2 - i, two, NULL}};
        snprintf(sentence, sizeof sentence,
                 "argument '%s': expected seqs to be b where there is no 'cu_q', given seqs=2 and b=3",
                 name[i]);
        CHECK_EQ(problem_from_args(&sig, arg, 5, false, &problem, &err), LATHE_ARG);
        CHECK_HAS(err.text, sentence);
    }
    ir_free(ir);
}

TEST(a_line_needs_the_size_of_a_page_alone)
{
    static const struct {
        const char *line;
        const char *text; /* problem_text, or: */
        const char *refused;
    } row[] = {
        {"pages=i32,b=2,q=1,kv=100", NULL,
         "problem: expected kv to be most * page where there are 'pages', given kv=100, most=7 and page=16"},
        {"page=3,b=2,q=1,kv=99", "dtype=bf16,b=2,h=8,h_kv=8,q=1,kv=99,page=3,most=33,pool=66,d=128,d_v=128",
         NULL},
        {"page=64,q=100", "dtype=bf16,b=1,h=8,h_kv=8,q=100,kv=128,page=64,most=2,pool=2,d=128,d_v=128", NULL},
        {"most=4,seqs=3,q=9",
         "dtype=bf16,b=1,h=8,h_kv=8,q=9,kv=64,seqs=3,page=16,most=4,pool=12,d=128,d_v=128", NULL},
        {"q=1,kv=64", "dtype=bf16,b=1,h=8,h_kv=8,q=1,kv=64,d=128,d_v=128", NULL},
        {"page=257", NULL, "argument 'pages': expected pages of 1 to 256 keys, given page=257"},
        {"page=0", NULL, "problem: expected page >= 1, given page=0"},
        {"page=256,most=9000000", NULL, "argument 'pages': expected most * page below 2^31"},
    };
    struct signature sig;
    struct ir *ir = load_signed("causal", LATHE_FORWARD, &sig);
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        struct problem p;
        struct text_buf text = {0};
        lathe_error err = {.status = LATHE_OK};
        const lathe_status status = problem_parse(&sig, row[i].line, &p, &err);
        if (row[i].refused)
            CHECK_HAS(err.text, row[i].refused);
        CHECK_EQ(status, row[i].text ? LATHE_OK : LATHE_ARG);
        if (!row[i].text)
            continue;
        problem_text(&sig, &p, &text);
        CHECK_STR(text.data, row[i].text);
        CHECK_EQ(problem_has_named(&sig, &p, "pages"), p.dim[SYM_PAGE] >= 0);
        text_free(&text);
    }
    ir_free(ir);
}
