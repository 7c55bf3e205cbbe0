/*
 * plan_lengths.c: what of lengths decides which kernel serves, and how many parts keys are cut into.
 */
#include "plan_pick.h"
#include "loaded.h"

static int lengths_asked(lathe_pass pass, const char *problem_text, const struct device *device)
{
    struct signature sig;
    struct problem problem;
    lathe_error err;
    struct ir *ir = load_signed("causal", pass, &sig);
    CHECK_EQ(problem_parse(&sig, problem_text, &problem, &err), LATHE_OK);
    const int lengths = plan_lengths(ir->kind, pass, &problem, device);
    ir_free(ir);
    return lengths;
}

/* Kernels are told apart by lengths only where this is true. */
TEST(plans_that_differ_for_many_keys_are_foretold)
{
    static const char *const specs[] = {"full", "causal", "sliding_window", "sigmoid", "relative_bias"};
    const struct device *const devices[] = {&A100, &H100};
    int differ = 0;
    for (int i = 0; i < 2; i++)
        for (int d = 16; d <= 256; d += 16)
            for (int pass = 0; pass < 2; pass++)
                for (size_t k = 0; k < sizeof specs / sizeof *specs; k++) {
                    struct plan few;
                    struct plan many;
                    lathe_error err;
                    char text[64];
                    snprintf(text, sizeof text, "dtype=bf16,b=64,h=16,q=1024,kv=1024,d=%d", d);
                    const lathe_status first =
                        pick_pass(specs[k], (lathe_pass)pass, text, devices[i], &few, &err);
                    snprintf(text, sizeof text, "dtype=bf16,b=64,h=16,q=16384,kv=16384,d=%d", d);
                    CHECK_EQ(pick_pass(specs[k], (lathe_pass)pass, text, devices[i], &many, &err), first);
                    if (first != LATHE_OK || strcmp(few.tile, many.tile) == 0)
                        continue;
                    CHECK_EQ(lengths_asked((lathe_pass)pass, text, devices[i]), LENGTHS_MANY_KEYS);
                    differ++;
                }
    CHECK(differ > 0);
    CHECK_EQ(lengths_asked(LATHE_FORWARD, "dtype=bf16,d=64,kv=8192", &H100), LENGTHS_MANY_KEYS);
    CHECK_EQ(lengths_asked(LATHE_FORWARD, "dtype=bf16,d=64,kv=8191", &H100), 0);
    CHECK_EQ(lengths_asked(LATHE_FORWARD, "dtype=bf16,d=80,kv=8192", &H100), 0);
    CHECK_EQ(lengths_asked(LATHE_FORWARD, "dtype=bf16,d=64,kv=8192", &A100), 0);
    CHECK_EQ(lengths_asked(LATHE_BACKWARD, "dtype=bf16,d=64,kv=8192", &H100), 0);
}

/* The tile of a spec on a H100; "": none. */
static void tile_of(const char *spec, const char *problem_text, char out[24])
{
    struct plan plan;
    lathe_error err;
    const lathe_status status = pick_pass(spec, LATHE_FORWARD, problem_text, &H100, &plan, &err);
    CHECK_EQ(status, LATHE_OK);
    snprintf(out, 24, "%s", status == LATHE_OK ? plan.tile : "");
}

struct planned { /* a spec and a problem, and the tile that is to be theirs on a H100 */
    const char *spec, *problem, *tile;
};

static void check_tiles(const struct planned *row, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char tile[24];
        tile_of(row[i].spec, row[i].problem, tile);
        CHECK_STR(tile, row[i].tile);
    }
}

/* Where tiles are so few that multiprocessors would wait, they are lower; else, and where nobody knows how
   many there are or a row may not depend on its batch, they are what they are for many. */
TEST(few_tiles_are_lower)
{
    static const struct planned row[] = {
        {"full", "dtype=bf16,d=128,b=1,h=16,q=2048,kv=2048", "128x128s2w8"},
        {"causal", "dtype=bf16,d=128,b=1,h=16,q=2048,kv=2048", "128x128s2w8"},
        {"causal", "dtype=bf16,d=128,b=1,h=16,q=1024,kv=1024", "64x128s2w4"},
        {"full", "dtype=bf16,d=64,b=1,h=16,q=512,kv=512", "64x128s4w4"},
        {"full", "dtype=bf16,d=64,b=1,h=16,q=1024,kv=1024", "128x128s3w8"},
        {"full", "dtype=bf16,d=128,b=4,h=16,q=4096,kv=4096", "192x80s3w12"},
        {"full", "dtype=bf16,d=128,h=16,q=2048,kv=2048", "192x80s3w12"},
        {"full", "dtype=bf16,d=128,b=1,h=16,q=2048,kv=2048,deterministic=batch", "192x80s3w12"},
        {"full", "dtype=bf16,d=128,b=1,seqs=4,h=16,q=2048", "192x80s3w12"},
        {"sliding_window", "dtype=bf16,d=128,b=1,h=16,q=2048,kv=2048", "192x64s4w12"},
    };
    check_tiles(row, sizeof row / sizeof *row);
}

/* Longer steps come with lower tiles, of which one more round costs more than they save. */
TEST(longer_steps_make_no_round_more)
{
    static const struct planned row[] = {
        {"full", "dtype=bf16,d=64,b=1,h=16,q=8192,kv=8192", "256x64s4w16"},
        {"full", "dtype=bf16,d=64,b=2,h=32,q=8192,kv=8192", "192x128s3w12"},
        {"full", "dtype=bf16,d=64,b=1,h=32,q=16384,kv=16384", "192x128s3w12"},
        {"full", "dtype=bf16,d=64,q=16384,kv=16384", "192x128s3w12"},
        {"causal", "dtype=bf16,d=64,b=2,h=32,q=8192,kv=8192", "256x64s4w16"},
    };
    check_tiles(row, sizeof row / sizeof *row);
}

/* Kernels are told apart by what lengths ask for: equal bits, one tile. */
TEST(lower_tiles_are_foretold)
{
    static const char *const specs[] = {"full", "causal", "sliding_window", "sigmoid", "alibi", "softcap"};
    static const int dims[] = {48, 64, 96, 128, 192};
    enum { BITS = 512 };
    int lower = 0;
    for (size_t k = 0; k < sizeof specs / sizeof *specs; k++)
        for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
            static char seen[BITS][24];
            memset(seen, 0, sizeof seen);
            for (int n = 0; n < 7 * 5; n++) {
                char text[96];
                char tile[24];
                const int q = 256 << n % 7;
                snprintf(text, sizeof text, "dtype=bf16,d=%d,b=1,h=%d,q=%d,kv=%d", dims[i], 4 << n / 7, q, q);
                const int bits = lengths_asked(LATHE_FORWARD, text, &H100);
                tile_of(specs[k], text, tile);
                CHECK(bits >= 0 && bits < BITS);
                if (seen[bits][0])
                    CHECK_STR(seen[bits], tile);
                snprintf(seen[bits], sizeof seen[bits], "%s", tile);
                lower += (bits & LENGTHS_ANY_LOW_TILES) != 0;
            }
        }
    CHECK(lower > 0);
}

/* Few rows of a key head, and keys enough for them. */
TEST(few_queries_are_foretold)
{
    CHECK_EQ(lengths_asked(LATHE_FORWARD, "dtype=bf16,d=80,h=8,h_kv=2,q=1,kv=512", &A100),
             LENGTHS_FEW_QUERIES);
    CHECK_EQ(lengths_asked(LATHE_FORWARD, "dtype=bf16,d=80,h=8,h_kv=2,q=1,kv=511", &A100), 0);
    CHECK_EQ(lengths_asked(LATHE_FORWARD, "dtype=bf16,d=80,h=8,h_kv=2,q=16,kv=1024", &A100),
             LENGTHS_FEW_QUERIES);
    CHECK_EQ(lengths_asked(LATHE_FORWARD, "dtype=bf16,d=80,h=8,h_kv=2,q=17,kv=1024", &A100), 0);
    CHECK_EQ(lengths_asked(LATHE_FORWARD, "dtype=bf16,d=80,h=2,q=64,kv=1023", &A100), 0);
    CHECK_EQ(lengths_asked(LATHE_BACKWARD, "dtype=bf16,d=80,h=8,h_kv=2,q=1,kv=512", &A100), 0);
    CHECK_EQ(lengths_asked(LATHE_FORWARD, "dtype=bf16,d=64,h=8,h_kv=2,q=1,kv=8192", &H100),
             LENGTHS_FEW_QUERIES | LENGTHS_MANY_KEYS);
}

/* Keys of 8 bits have another kernel for up to eight rows. */
TEST(nine_rows_against_keys_of_8_bits_are_foretold)
{
#define SHAPE "dtype=bf16,d=80,h=8,h_kv=2,kv=1024,"
    CHECK_EQ(lengths_asked(LATHE_FORWARD, SHAPE "k=i8,v=i8,q=2", &A100), LENGTHS_FEW_QUERIES);
    CHECK_EQ(lengths_asked(LATHE_FORWARD, SHAPE "k=i8,v=i8,q=3", &A100),
             LENGTHS_FEW_QUERIES | LENGTHS_NINE_ROWS);
    CHECK_EQ(lengths_asked(LATHE_FORWARD, SHAPE "q=3", &A100), LENGTHS_FEW_QUERIES);
#undef SHAPE
}

/* Of packed sequences on average: 16 tokens each are few, against pages or keys of their own. */
TEST(few_packed_queries_are_foretold)
{
#define PACKED "dtype=bf16,d=80,b=1,seqs=8,h=8,h_kv=2,"
    CHECK_EQ(lengths_asked(LATHE_FORWARD, PACKED "q=128,page=16,kv=512", &A100), LENGTHS_FEW_QUERIES);
    CHECK_EQ(lengths_asked(LATHE_FORWARD, PACKED "q=129,page=16,kv=512", &A100), 0);
    CHECK_EQ(lengths_asked(LATHE_FORWARD, PACKED "q=128,page=16,kv=496", &A100), 0);
    CHECK_EQ(lengths_asked(LATHE_FORWARD, PACKED "q=128,kv=4096", &A100), LENGTHS_FEW_QUERIES);
    CHECK_EQ(lengths_asked(LATHE_FORWARD, PACKED "q=128,kv=4088", &A100), 0);
    CHECK_EQ(lengths_asked(LATHE_FORWARD, PACKED "q=4096,kv=4096", &A100), 0);
#undef PACKED
}

/* Pages that TMA does not read have another kernel on Hopper. */
TEST(odd_pages_are_foretold)
{
    const struct device asked = asking_for(&H100, "attention_fwd_sm90");
#define PAGED "dtype=bf16,d=128,b=2,h=8,h_kv=2,q=1024,kv=960,page="
    static const struct {
        const char *text;
        bool odd;
    } row[] = {
        {PAGED "16", false}, {PAGED "24", true}, {PAGED "8", true}, {PAGED "64", false}, {PAGED "1", true}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct plan plan;
        lathe_error err;
        CHECK_EQ(lengths_asked(LATHE_FORWARD, row[i].text, &H100), row[i].odd ? LENGTHS_ODD_PAGES : 0);
        CHECK_EQ(lengths_asked(LATHE_FORWARD, row[i].text, &A100), 0);
        CHECK_EQ(pick_pass("causal", LATHE_FORWARD, row[i].text, &asked, &plan, &err),
                 row[i].odd ? LATHE_UNSUPPORTED : LATHE_OK);
    }
#undef PAGED
}

static int64_t parts_of(const char *sizes, int rows, int blocks, bool even, int64_t *row_tiles)
{
    struct signature sig;
    struct problem problem;
    lathe_error err;
    struct ir *ir = load_signed("causal", LATHE_FORWARD, &sig);
    CHECK_EQ(problem_parse(&sig, sizes, &problem, &err), LATHE_OK);
    ir_free(ir);
    *row_tiles = lathe__row_tiles(&problem, rows);
    return even ? lathe__even_key_parts(&problem, rows, blocks) : lathe__key_parts(&problem, rows, blocks);
}

/* Whole turns of all blocks, in as few parts as make them. */
TEST(dear_parts_of_keys_fill_whole_turns)
{
    static const struct {
        const char *sizes;
        int64_t tiles, parts;
    } row[] = {{"b=64,h=128,q=1,kv=8192", 2, 1}, {"b=16,h=128,q=1,kv=8192", 2, 4},
               {"b=1,h=128,q=1,kv=8192", 2, 32}, {"b=48,h=128,q=1,kv=8192", 2, 4},
               {"b=128,h=16,q=1,kv=8192", 1, 1}, {"b=1,h=128,q=1,kv=1000000", 2, 66},
               {"b=1,h=16,q=1,kv=300", 1, 1},    {"b=1,h=16,q=1,kv=0", 1, 1}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        int64_t tiles = 0;
        char text[96];
        snprintf(text, sizeof text, "dtype=bf16,d=128,h_kv=1,%s", row[i].sizes);
        CHECK_EQ(parts_of(text, 64, 132, true, &tiles), row[i].parts);
        CHECK_EQ(tiles, row[i].tiles);
    }
}

/* Blocks enough, in about four turns where keys are many, and parts neither too short nor too many. */
TEST(keys_are_cut_into_parts)
{
    static const struct {
        const char *sizes;
        int64_t tiles, parts;
    } row[] = {{"b=1,h=32,h_kv=8,q=1,kv=32768", 1, 33},
               {"b=8,h=32,h_kv=8,q=1,kv=16384", 1, 16},
               {"b=16,h=32,h_kv=8,q=1,kv=8192", 1, 8},
               {"b=64,h=32,h_kv=8,q=1,kv=4096", 1, 3},
               {"b=1,h=32,h_kv=8,q=1,kv=300", 1, 2},
               {"b=1,h=8,h_kv=1,q=1,kv=1000000", 1, 128},
               {"b=4096,h=32,h_kv=8,q=1,kv=1024", 1, 1},
               {"b=1,h=32,h_kv=8,q=4,kv=32768", 1, 33},
               {"b=1,h=32,h_kv=8,q=5,kv=32768", 1, 33},
               {"b=1,h=32,h_kv=8,q=16,kv=32768", 1, 33},
               {"b=1,h=32,h_kv=8,q=17,kv=32768", 2, 32},
               /* packed: as of batches of as many tokens; tiles that may end in each sequence */
               {"b=1,seqs=8,h=32,h_kv=8,q=8,page=16,kv=16384", 8, 16},
               {"b=1,seqs=8,h=32,h_kv=8,q=8,kv=131072", 8, 16},
               {"b=1,seqs=64,h=32,h_kv=8,q=256,page=64,kv=4096", 80, 3},
               {"b=1,seqs=1,h=32,h_kv=8,q=17,page=16,kv=32768", 2, 32}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        int64_t tiles = 0;
        char text[96];
        snprintf(text, sizeof text, "dtype=bf16,d=128,%s", row[i].sizes);
        CHECK_EQ(parts_of(text, 64, 264, false, &tiles), row[i].parts);
        CHECK_EQ(tiles, row[i].tiles);
    }
}

/* What a rank of two computes of a problem of 32768 tokens (runtime/dist) gets the template and the tiles of
   the whole problem: a piece of the queries of half of the heads, all tokens of half of the heads, and
   backward a piece of the queries and of the keys. Parts of rows get its template, with tiles for rows that
   go from tile to tile as online_fwd says. */
TEST(a_rank_gets_the_kernel_of_the_whole_problem)
{
    static const char *const spec[] = {"causal", "document", "sinks", "softcap", "alibi", "sliding_window"};
    static const char *const part[] = {"h=8,n_h=16,q=8192,kv=32768", "h=8,n_h=16,q=32768,kv=32768",
                                       "h=16,q=16384,kv=16384,len_kv=65536"};
    for (size_t s = 0; s < sizeof spec / sizeof *spec; s++)
        for (int pass = 0; pass < 2; pass++) {
            struct plan whole;
            struct plan plan;
            lathe_error err = {0};
            char text[128];
            CHECK_EQ(pick_pass(spec[s], (lathe_pass)pass, "dtype=bf16,b=1,h=16,q=32768,kv=32768,d=128", &H100,
                               &whole, &err),
                     LATHE_OK);
            for (int i = 0; i < 2 + pass; i++) {
                snprintf(text, sizeof text, "dtype=bf16,b=1,d=128,%s", part[i]);
                CHECK_EQ(pick_pass(spec[s], (lathe_pass)pass, text, &H100, &plan, &err), LATHE_OK);
                CHECK_STR(plan.row->name, whole.row->name);
                CHECK_STR(plan.tile, whole.tile);
            }
            if (pass == 0) {
                snprintf(text, sizeof text, "dtype=bf16,b=1,d=128,%s,part_o=f32,part_rows=f32", part[2]);
                CHECK_EQ(pick_pass(spec[s], LATHE_FORWARD, text, &H100, &plan, &err), LATHE_OK);
                CHECK_STR(plan.row->name, whole.row->name);
                printf("  %s: %s, parts %s\n", spec[s], whole.tile, plan.tile);
            }
        }
}
