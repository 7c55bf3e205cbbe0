/*
 * block_lists.c: lists of live key blocks become a table of blocks, and attention by that table is attention
 * by the mask that the lists were made of.
 */
#include "check.h"
#include "gen/gen.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static lathe_status launch(const char *text, const char *spec, const lathe_arg *args, int n, lathe_error *err)
{
    char path[64];
    struct diag diag = {0};
    struct signature sig;
    snprintf(path, sizeof path, "specs/%s.lua", spec ? spec : "");
    const struct embedded *file = spec ? embedded_find(path) : NULL;
    if (spec && !file)
        abort();
    struct ir *ir = spec_load("t.lua", file ? file->data : text, file ? file->size : strlen(text), &diag);
    CHECK(ir != NULL);
    signature_make(ir, LATHE_FORWARD, &sig);
    const lathe_status status = host_forward(ir, &sig, args, n, NULL, 0, err);
    ir_free(ir);
    return status;
}

static void run(const char *text, const char *spec, const lathe_arg *args, int n)
{
    lathe_error err = {0};
    const lathe_status status = launch(text, spec, args, n, &err);
    CHECK_STR(err.text, "");
    CHECK_EQ(status, LATHE_OK);
}

enum { H = 2, QUERY_BLOCKS = 3, KEY_BLOCKS = 5, LINES = H * QUERY_BLOCKS };

static bool is_live(int line, int block) /* line 0 has none, line 1 all, line 2 the last one alone */
{
    return line == 1 || (line == 2 ? block == KEY_BLOCKS - 1 : line > 2 && (line * 7 + block * 5) % 3 == 0);
}

/* What is behind the count of a list is of no effect: the numbers of dead blocks, as FlexAttention puts
 * there. */
static void make_lists(int32_t *counts, int32_t *blocks, int most)
{
    for (int line = 0; line < LINES; line++) {
        int32_t *list = blocks + (size_t)line * (size_t)most;
        int n = 0;
        for (int block = 0; block < KEY_BLOCKS; block++)
            if (is_live(line, block))
                list[n++] = block;
        counts[line] = n;
        for (int i = n; i < most; i++)
            list[i] = (i * 3) % KEY_BLOCKS;
    }
}

static void make_live(int32_t *live, int most)
{
    int32_t counts[LINES];
    int32_t *blocks = calloc((size_t)LINES * (size_t)most, sizeof *blocks);
    if (!blocks)
        abort();
    make_lists(counts, blocks, most);
    const int64_t lines[] = {LINES};
    const int64_t lists[] = {LINES, most};
    const int64_t table[] = {LINES, KEY_BLOCKS};
    run(NULL, "block_lists",
        (lathe_arg[]){{"counts", counts, LATHE_I32, 1, lines, NULL},
                      {"blocks", blocks, LATHE_I32, 2, lists, NULL},
                      {"live", live, LATHE_I32, 2, table, NULL}},
        3);
    free(blocks);
}

/* What is live is found by halves, so a list that falls would lose blocks in silence. */
TEST(a_list_that_falls_is_refused)
{
    const int64_t lines[] = {2};
    const int64_t lists[] = {2, 4};
    const int64_t table[] = {2, KEY_BLOCKS};
    int32_t counts[] = {4, 3};
    int32_t blocks[] = {0, 1, 3, 4, 1, 3, 2, 0};
    int32_t live[2 * KEY_BLOCKS];
    lathe_error err = {0};
    memset(live, 77, sizeof live);
    const lathe_arg args[] = {{"counts", counts, LATHE_I32, 1, lines, NULL},
                              {"blocks", blocks, LATHE_I32, 2, lists, NULL},
                              {"live", live, LATHE_I32, 2, table, NULL}};
    CHECK_EQ(launch(NULL, "block_lists", args, 3, &err), LATHE_ARG);
    CHECK_HAS(err.text,
              "argument 'blocks': expected values that do not fall along the last dim (sorted by counts");
    CHECK_HAS(err.text, "given 2 behind 3 at [1,2]");
    CHECK_EQ(live[0], 77 * 0x01010101);
    counts[1] = 2; /* what is behind the count may fall */
    CHECK_EQ(launch(NULL, "block_lists", args, 3, &err), LATHE_OK);
}

TEST(lists_become_a_table)
{
    for (int most = KEY_BLOCKS; most < 12; most++) {
        int32_t live[LINES * KEY_BLOCKS];
        make_live(live, most);
        for (int i = 0; i < LINES * KEY_BLOCKS; i++)
            CHECK_EQ(live[i], is_live(i / KEY_BLOCKS, i % KEY_BLOCKS));
    }
}

static const char SAME_MASK[] = "local function live(at)\n"
                                "  local line, block = at.h * 3 + at.row // 64, at.kv // 64\n"
                                "  local some = gt(line, 2) & eq((line * 7 + block * 5) % 3, 0)\n"
                                "  return eq(line, 1) | (eq(line, 2) & eq(block, 4)) | some\n"
                                "end\n"
                                "return attention { mask_mod = live }\n";

enum { QUERIES = 2 * 64 + 9, KEYS = 4 * 64 + 31, D = 4 };

static void attend(bool by_table, double *o)
{
    static double q[H * QUERIES * D];
    static double k[H * KEYS * D];
    int32_t live[LINES * KEY_BLOCKS];
    make_live(live, KEY_BLOCKS);
    for (int i = 0; i < H * QUERIES * D; i++)
        q[i] = ((i * 37) % 101) / 50.0 - 1;
    for (int i = 0; i < H * KEYS * D; i++)
        k[i] = ((i * 53) % 97) / 48.0 - 1;
    const int64_t queries[] = {1, H, QUERIES, D};
    const int64_t keys[] = {1, H, KEYS, D};
    const int64_t table[] = {1, H, QUERY_BLOCKS, KEY_BLOCKS};
    const lathe_arg args[] = {{"q", q, LATHE_F64, 4, queries, NULL},
                              {"k", k, LATHE_F64, 4, keys, NULL},
                              {"v", k, LATHE_F64, 4, keys, NULL},
                              {"o", o, LATHE_F64, 4, queries, NULL},
                              {"live", live, LATHE_I32, 4, table, NULL}};
    run(SAME_MASK, by_table ? "block_mask" : NULL, args, by_table ? 5 : 4);
}

TEST(attention_by_a_table_is_attention_by_its_mask)
{
    static double o[H * QUERIES * D];
    static double wanted[H * QUERIES * D];
    attend(true, o);
    attend(false, wanted);
    for (int i = 0; i < 64 * D; i++)
        CHECK_EQ(o[i], 0.0); /* the first query block has no keys */
    for (int i = 0; i < H * QUERIES * D; i++)
        CHECK_CLOSE(o[i], wanted[i], 1e-13);
}
