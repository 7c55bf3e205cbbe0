/*
 * plan_gathered.c: keys of 8 bits in pages that are copied out of them ahead of Hopper's kernel: when that
 * pays, what it takes of memory, and that whatever else is in pages has the kernels that it had.
 */
#include "plan_pick.h"
#include "loaded.h"
#include "runtime/recipe/bind.h"

static const char GATHERED[] = "attention_fwd_gathered_sm90";
#define NARROW "dtype=bf16,k=f8e4m3,v=f8e4m3,h=8,h_kv=2,d=128,"

static int lengths_of(const char *text, const struct device *device)
{
    struct signature sig;
    struct problem problem;
    lathe_error err;
    struct ir *ir = load_signed("causal", LATHE_FORWARD, &sig);
    CHECK_EQ(problem_parse(&sig, text, &problem, &err), LATHE_OK);
    const int lengths = plan_lengths(ir->kind, LATHE_FORWARD, &problem, device);
    ir_free(ir);
    return lengths;
}

/* By rows of queries for each key, of packed sequences on average, and by how many copies a page may have. */
TEST(copies_are_made_where_they_pay)
{
    static const struct {
        const char *text;
        bool pays;
    } row[] = {
        {NARROW "q=32,kv=4096,page=64", true},
        {NARROW "q=31,kv=4096,page=64", false},
        {NARROW "b=4,q=32,kv=4096,page=64", true},
        {NARROW "seqs=4,q=128,kv=4096,page=64", true},
        {NARROW "seqs=4,q=127,kv=4096,page=64", false},
        {NARROW "b=4,q=512,kv=4096,page=64,pool=128", true}, /* 256 places */
        {NARROW "b=4,q=512,kv=4096,page=64,pool=127", false},
        {NARROW "b=4,q=512,kv=4095,page=3", true},
        {NARROW "b=4,q=512,kv=4096,page=64,deterministic=batch", false},
        {NARROW "q=4096,kv=4096", false},               /* in no pages */
        {NARROW "b=128,q=512,kv=32768,page=256", true}, /* 4 GiB */
        {NARROW "b=129,q=512,kv=32768,page=256", false},
        {NARROW "b=513,q=512,kv=1048576,page=256", false}, /* more than 2^30 places of two heads */
    };
    const struct device named = asking_for(&H100, GATHERED);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct plan plan;
        lathe_error err = {.status = LATHE_OK};
        CHECK_EQ((lengths_of(row[i].text, &H100) & LENGTHS_GATHERED) != 0, row[i].pays);
        CHECK_EQ(pick_pass("causal", LATHE_FORWARD, row[i].text, &H100, &plan, &err), LATHE_OK);
        CHECK_EQ(strcmp(plan.row->name, GATHERED) == 0, row[i].pays);
        const lathe_status status = pick_pass("causal", LATHE_FORWARD, row[i].text, &named, &plan, &err);
        if (status == LATHE_OK)
            CHECK_EQ(strstr(plan.reason, "since each meets 128 rows of queries or more") != NULL,
                     row[i].pays);
        else
            CHECK(!row[i].pays);
    }
}

static void make(const char *spec, const char *text, const struct device *device, struct source *source,
                 struct problem *problem)
{
    struct signature sig;
    lathe_error err = {.status = LATHE_OK};
    struct ir *ir = load_signed(spec, LATHE_FORWARD, &sig);
    CHECK_EQ(problem_parse(&sig, text, problem, &err), LATHE_OK);
    CHECK_EQ(kernel_make_source(ir, LATHE_FORWARD, &sig, problem, device, source, &err), LATHE_OK);
    ir_free(ir);
}

/* Of all keys that the tables have places for, however large the pool is; nothing else widens them. */
TEST(copies_have_room_for_the_places_of_tables)
{
    static const struct {
        const char *text;
        int64_t keys, more; /* bytes beside them: a counter of tiles, where sequences begin */
    } row[] = {
        {NARROW "b=3,q=256,page=64,most=20,pool=999,used_kv=i32", 3 * 64 * 20, 8},
        {NARROW "seqs=5,q=2560,page=24,most=20,pool=999,used_kv=i32", 5 * 24 * 20, 8 + 5 * 8},
    };
    const struct device named = asking_for(&H100, GATHERED);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        static struct source source;
        struct problem problem;
        int64_t bytes = 0;
        make("causal", row[i].text, &named, &source, &problem);
        for (int k = 0; k < source.n_buffers; k++)
            bytes += lathe__buffer_bytes(&source.buffer[k], &problem);
        CHECK_EQ(bytes, row[i].keys * 2 * (128 + 128) * 2 + row[i].more);
        CHECK_EQ(source.n_launches, 2);
        CHECK_HAS(source.launch[0].entry, "pages_in");
        CHECK_HAS(source.launch[1].entry, "fwd");
        source_free(&source);
    }
}

/* Tiles are those of keys beside each other, and pages of any size are taken. */
TEST(copies_are_read_as_any_keys)
{
    static const char *const PROBLEM[] = {NARROW "b=2,q=512,kv=4096,page=64",
                                          NARROW "b=2,q=512,kv=4096,page=8"};
    const struct device named = asking_for(&H100, GATHERED);
    for (int i = 0; i < 2; i++) {
        struct plan plan;
        lathe_error err = {.status = LATHE_OK};
        CHECK_EQ(pick("causal", PROBLEM[i], &named, &plan, &err), LATHE_OK);
        CHECK_STR(plan.tile, "192x80s3w12");
        CHECK(plan.attention.gathers && !plan.attention.reads_narrow && !plan.bound_waits);
        CHECK_STR(plan.attention.narrow, "k and v are");
    }
}

static void check_refused(const char *spec, const char *text, const char *says)
{
    const struct device named = asking_for(&H100, GATHERED);
    struct plan plan;
    lathe_error err = {.status = LATHE_OK};
    CHECK_EQ(pick(spec, text, &named, &plan, &err), LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, says);
}

TEST(what_is_not_copied_is_said)
{
    check_refused("causal", "dtype=bf16,h=8,q=512,kv=4096,page=64,d=128",
                  "neither k nor v is of 8 bits in pages");
    check_refused("causal", NARROW "q=512,kv=4096", "neither k nor v is of 8 bits in pages");
    check_refused("qk_norm", NARROW "q=512,kv=4096,page=64", "pages are given beside a mod of k");
    check_refused("causal", NARROW "q=512,kv=4096,page=64,unaligned=k",
                  "do not start at multiples of 16 bytes");
    check_refused("mla_decoupled", "dtype=bf16,k=f8e4m3,h=4,h_kv=1,q=512,kv=4096,page=64,d=128,d2=64,d_v=128",
                  "q2 and k2");
    check_refused("causal", NARROW "b=513,q=512,kv=1048576,page=256", "places that TMA counts");
}

TEST(pages_of_16_bits_are_read_as_they_lie)
{
    struct plan plan;
    lathe_error err = {.status = LATHE_OK};
    CHECK_EQ(pick("causal", "dtype=bf16,h=8,q=512,kv=4096,page=64,d=128", &H100, &plan, &err), LATHE_OK);
    CHECK_STR(plan.row->name, "attention_fwd_sm90");
    CHECK(!plan.attention.gathers);
}
