/*
 * packed.c: lengths, starts, ids, positions and chunks of packed sequences, to and fro, on the host and as
 * specs.
 */
#include "check.h"
#include "loaded.h"
#include "gen/gen.h"
#include "lathe_packed.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static void same(const int32_t *a, const int32_t *b, int n)
{
    for (int i = 0; i < n; i++)
        CHECK_EQ(a[i], b[i]);
}

#define SAME(a, ...)                                                                                         \
    same((a), (const int32_t[]){__VA_ARGS__}, (int)(sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t)))

TEST(every_number_of_an_example)
{
    const int32_t lengths[] = {3, 1, 4, 2};
    int32_t cu[5];
    int32_t back[5];
    int32_t ids[10];
    int32_t positions[10];
    int32_t offsets[5];
    int32_t indices[12];
    int32_t n = 0;
    lathe_error err;
    CHECK_EQ(lathe_packed_starts(lengths, 4, cu, &err), LATHE_OK);
    SAME(cu, 0, 3, 4, 8, 10);
    CHECK_EQ(lathe_packed_tokens(cu, 4, ids, positions, &err), LATHE_OK);
    SAME(ids, 0, 0, 0, 1, 2, 2, 2, 2, 3, 3);
    SAME(positions, 0, 1, 2, 0, 0, 1, 2, 3, 0, 1);
    CHECK_EQ(lathe_packed_chunk_offsets(cu, 4, 2, offsets, &err), LATHE_OK);
    SAME(offsets, 0, 2, 3, 5, 6);
    CHECK_EQ(lathe_packed_chunk_indices(offsets, 4, indices, &err), LATHE_OK);
    SAME(indices, 0, 0, 0, 1, 1, 0, 2, 0, 2, 1, 3, 0);
    CHECK_EQ(lathe_packed_lengths(cu, 4, back, &err), LATHE_OK);
    SAME(back, 3, 1, 4, 2);
    CHECK_EQ(lathe_packed_starts_of_ids(ids, 10, 4, back, &err), LATHE_OK);
    SAME(back, 0, 3, 4, 8, 10);
    CHECK_EQ(lathe_packed_starts_of_positions(positions, 10, &n, back, &err), LATHE_OK);
    CHECK_EQ(n, 4);
    SAME(back, 0, 3, 4, 8, 10);
}

/* Empty ones in front, in the middle, side by side and at the end. */
TEST(sequences_without_tokens)
{
    const int32_t lengths[] = {0, 2, 0, 0, 3, 0};
    int32_t cu[7];
    int32_t back[7];
    int32_t ids[5];
    int32_t offsets[7];
    int32_t indices[6];
    lathe_error err;
    CHECK_EQ(lathe_packed_starts(lengths, 6, cu, &err), LATHE_OK);
    SAME(cu, 0, 0, 2, 2, 2, 5, 5);
    CHECK_EQ(lathe_packed_tokens(cu, 6, ids, NULL, &err), LATHE_OK);
    SAME(ids, 1, 1, 4, 4, 4);
    CHECK_EQ(lathe_packed_starts_of_ids(ids, 5, 6, back, &err), LATHE_OK);
    SAME(back, 0, 0, 2, 2, 2, 5, 5);
    CHECK_EQ(lathe_packed_chunk_offsets(cu, 6, 2, offsets, &err), LATHE_OK);
    SAME(offsets, 0, 0, 1, 1, 1, 3, 3);
    CHECK_EQ(lathe_packed_chunk_indices(offsets, 6, indices, &err), LATHE_OK);
    SAME(indices, 1, 0, 4, 0, 4, 1);
    CHECK_EQ(lathe_packed_starts(lengths, 0, cu, &err), LATHE_OK);
    SAME(cu, 0);
    CHECK_EQ(lathe_packed_starts_of_ids(ids, 0, 2, back, &err), LATHE_OK);
    SAME(back, 0, 0, 0);
}

TEST(what_is_wrong_is_named)
{
    const int32_t lengths[] = {1, -2};
    const int32_t falling[] = {0, 3, 2};
    const int32_t late[] = {1, 2};
    const int32_t many[] = {INT32_MAX, 1};
    const int32_t ids[] = {0, 2, 1};
    const int32_t positions[] = {0, 1, 3};
    int32_t out[8];
    int32_t n = 0;
    lathe_error err;
    CHECK_EQ(lathe_packed_starts(lengths, 2, out, &err), LATHE_ARG);
    CHECK_STR(err.text, "lengths: expected entry 1 to be 0 or more, given -2");
    CHECK_EQ(lathe_packed_starts(many, 2, out, &err), LATHE_ARG);
    CHECK_HAS(err.text, "sequence 1 makes it more");
    CHECK_EQ(lathe_packed_lengths(falling, 2, out, &err), LATHE_ARG);
    CHECK_STR(err.text, "cu_seqlens: expected entry 2 to be at least 3, given 2");
    CHECK_EQ(lathe_packed_tokens(late, 1, out, NULL, &err), LATHE_ARG);
    CHECK_STR(err.text, "cu_seqlens: expected entry 0 to be 0, given 1");
    CHECK_EQ(lathe_packed_starts_of_ids(ids, 3, 3, out, &err), LATHE_ARG);
    CHECK_STR(err.text, "sequence_ids: expected entry 2 to be in 2..2, given 1");
    CHECK_EQ(lathe_packed_starts_of_positions(positions, 3, &n, out, &err), LATHE_ARG);
    CHECK_STR(err.text, "positions: expected entry 2 to be 0 or 2, given 3");
    CHECK_EQ(lathe_packed_chunk_offsets(falling, 1, 0, out, &err), LATHE_ARG);
    CHECK_STR(err.text, "chunk: expected 1 token or more, given 0");
    CHECK_EQ(lathe_packed_starts(lengths, -1, out, &err), LATHE_ARG);
    CHECK_STR(err.text, "n: expected 0 or more, given -1");
}

/* ---- the specs ----------------------------------------------------------------------------------- */

static void run(const char *spec, const lathe_arg *args, int n)
{
    struct signature sig;
    lathe_error err = {0};
    struct ir *ir = load_signed(spec, LATHE_FORWARD, &sig);
    const lathe_status status = host_forward(ir, &sig, args, n, NULL, 0, &err);
    CHECK_STR(err.text, "");
    CHECK_EQ(status, LATHE_OK);
    ir_free(ir);
}

static lathe_arg vector(const char *name, int32_t *data, const int64_t *n)
{
    return (lathe_arg){name, data, LATHE_I32, 1, n, NULL};
}
static lathe_arg number(const char *name, int32_t *value)
{
    return (lathe_arg){name, value, LATHE_I32, 0, NULL, NULL};
}

enum { MOST = 64, TOKENS = 8 * MOST };

static void compare_specs(int32_t *lengths, int32_t n, int32_t chunk)
{
    int32_t cu[MOST + 1];
    int32_t offsets[MOST + 1];
    int32_t ids[TOKENS];
    int32_t positions[TOKENS];
    int32_t indices[2 * TOKENS];
    int32_t a[TOKENS];
    int32_t b[TOKENS];
    int32_t first[TOKENS];
    int32_t length[TOKENS];
    lathe_error err;
    CHECK_EQ(lathe_packed_starts(lengths, n, cu, &err), LATHE_OK);
    CHECK_EQ(lathe_packed_tokens(cu, n, ids, positions, &err), LATHE_OK);
    CHECK_EQ(lathe_packed_chunk_offsets(cu, n, chunk, offsets, &err), LATHE_OK);
    CHECK_EQ(lathe_packed_chunk_indices(offsets, n, indices, &err), LATHE_OK);
    const int64_t ends = n + 1;
    const int64_t many = n;
    const int64_t tokens = cu[n];
    const int64_t chunks = offsets[n];
    run("packed_offsets",
        (lathe_arg[]){vector("lengths_of", lengths, &many), vector("cu_seqlens", a, &ends),
                      vector("chunk_offsets", b, &ends), number("chunk", &chunk)},
        4);
    same(a, cu, n + 1);
    same(b, offsets, n + 1);
    run("packed_tokens",
        (lathe_arg[]){vector("cu_seqlens", cu, &ends), number("n", &n), vector("sequence", a, &tokens),
                      vector("position", b, &tokens)},
        4);
    same(a, ids, (int)tokens);
    same(b, positions, (int)tokens);
    run("packed_chunks",
        (lathe_arg[]){vector("cu_seqlens", cu, &ends), vector("chunk_offsets", offsets, &ends),
                      number("n", &n), number("chunk", &chunk), vector("sequence", a, &chunks),
                      vector("index", b, &chunks), vector("first", first, &chunks),
                      vector("length", length, &chunks)},
        8);
    int32_t next = 0; /* chunks follow one another without a gap */
    for (int64_t c = 0; c < chunks; c++) {
        CHECK_EQ(a[c], indices[2 * c]);
        CHECK_EQ(b[c], indices[2 * c + 1]);
        CHECK_EQ(first[c], next);
        CHECK(length[c] >= 1 && length[c] <= chunk);
        CHECK(first[c] + length[c] <= cu[a[c] + 1]);
        next += length[c];
    }
    CHECK_EQ(next, cu[n]);
}

TEST(specs_make_the_same_numbers)
{
    int32_t lengths[MOST];
    uint32_t state = 1;
    for (int32_t n = 1; n <= MOST; n += n < 8 ? 1 : 7) {
        for (int32_t i = 0; i < n; i++) {
            state = state * 1664525u + 1013904223u;
            lengths[i] = (state >> 16) % 3 == 0 ? 0 : (int32_t)((state >> 20) % 8);
        }
        compare_specs(lengths, n, 1 + n % 4);
    }
    compare_specs((int32_t[]){0, 0, 0}, 3, 2);
    compare_specs((int32_t[]){0, 0, 7, 0}, 4, 7);
}
