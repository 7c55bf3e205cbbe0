/*
 * index_ranges.c: up to which sizes a spec holds. Expected sizes follow from the formulas by hand: at.q *
 * at.q is below 2^31 for positions up to 46340, a table of 64 entries has room for 64 distances. Specs are
 * texts here.
 */
#include "check.h"
#include "loaded.h"
#include "gen/gen.h"
#include "gen/prove/index_ranges.h"

#include <stdio.h>
#include <string.h>

static void expect(const char *text, const char *note, int line)
{
    struct proof proof = {0};
    struct ir *ir = load_spec(text);
    prove_ranges(ir, NULL, &proof);
    CHECK_STR(proof.note, note);
    CHECK(proof.passed);
    CHECK_EQ(proof.warned, line > 0);
    CHECK_EQ(proof.line, line);
    ir_free(ir);
}

/* A score of attention, with inputs. */
static void expect_score(const char *inputs, const char *score, const char *note)
{
    char text[600];
    const char *const holds = "holds up to q, kv = 16777216";
    snprintf(text, sizeof text,
             "return attention { mask_mod = causal, inputs = { %s },\n"
             "  score_mod = function(s, at, x) return s + %s end }",
             inputs, score);
    expect(text, note ? note : holds,
           note && !strstr(note, "declared") && !strstr(note, "enough in") ? 2 : 0);
}

/* An input over queries is read at at.row: at.q is the position among the keys, and beyond it where kv > q.
 */
TEST(an_input_over_queries_is_read_by_row)
{
    expect_score("t = tensor('f32', 'q')", "x.t(at.row)", NULL);
    expect_score("t = tensor('f32', 'b', 'q')", "x.t(at.b, at.q)",
                 "dim 1 of x.t(at.b, at.q) is read from 127 to 127, outside 0..0 at q = 1, kv = 128");
    expect("return attention { inputs = { g = tensor('f32', 'q', 'd') },\n"
           "  query_mod = function(v, at, x) return v * x.g(at.pos, at.i) end }",
           "dim 0 of x.g(at.pos, at.i) is read from 0 to 127, outside 0..0 at q = 1, kv = 128", 2);
}

/* ---- 32 bits ---------------------------------------------------------------------------------------------
 */

TEST(products_leave_32_bits)
{
    expect_score("", "at.q * at.q", "holds up to q, kv = 46341: at.q * at.q leaves 32 bits beyond");
    expect_score("", "at.q * at.kv", "holds up to q, kv = 46341: at.q * at.kv leaves 32 bits beyond");
    expect_score("", "1000 * at.q", "holds up to q, kv = 2147484: at.q * 1000 leaves 32 bits beyond");
    expect_score("", "f32(at.q << 12)", "holds up to q, kv = 524288: at.q << 12 leaves 32 bits beyond");
    expect_score("", "f32((at.q - at.kv) << 20)",
                 "holds up to q, kv = 2048: (at.q - at.kv) << 20 leaves 32 bits beyond");
    expect_score("", "f32(1 << at.kv)", "holds up to q, kv = 31: 1 << at.kv leaves 32 bits beyond");
    expect_score("", "f32((at.q << 12) & 4095)", NULL); /* a hash */
    /* 127 * 127 * position, of 128 heads; of the 256 that are looked at 255 * 255 * (n - 1) < 2^31 */
    expect_score("", "at.h * at.h * at.q",
                 "holds up to q, kv = 33026: (at.h * at.h) * at.q leaves 32 bits beyond");
    expect_score("", "at.q * at.q // 3 + at.q * 7",
                 "holds up to q, kv = 46341: at.q * at.q leaves 32 bits beyond");
    expect_score("", "127 * at.q", NULL); /* 127 * 2^24 < 2^31 */
    expect_score("", "f32(at.q) * f32(at.q)", NULL);
    expect_score("", "(at.q % 1000) * (at.kv % 1000)", NULL);
}

TEST(ranges_of_scalars_count)
{
    expect_score("n = scalar('i32', { range = { 1, 65537 } })", "x.n * at.kv",
                 "holds up to q, kv = 32768: x.n * at.kv leaves 32 bits beyond"); /* 65536 * 32768 = 2^31 */
    expect_score("n = scalar('i32', { range = { 1, 101 } })", "x.n * at.kv", NULL);
    expect_score("n = scalar('i32')", "x.n * at.kv", NULL); /* nobody says how large: not judged */
    expect_score("n = scalar('i32', { range = { 0, 9 } })", "at.q % x.n", "the divisor x.n may be 0");
    expect_score("n = scalar('i32', { range = { 1, 9 } })", "at.q % x.n", NULL);
    expect_score("n = scalar('i32', { range = { 0, 9 } })", "at.q // max(x.n, 1)", NULL);
}

/* What goes into bits alone is meant to wrap around. */
TEST(hashes_are_no_trouble)
{
    expect_score("t = tensor('f32', 256)", "x.t((at.q * 73856093 ~ at.kv * 19349663) & 255)", NULL);
    expect_score("t = tensor('f32', 256)", "x.t((at.q * 73856093 ~ at.kv * 19349663) & 511)",
                 "dim 0 of x.t(((at.q * 73856093) ~ (at.kv * 19349663)) & 511) is read from 0 to 511, "
                 "outside 0..255 at "
                 "q, kv = 128");
    expect_score("t = tensor('f32', 64)", "x.t((at.kv & 1023) >> 4)", NULL);
    expect_score(
        "t = tensor('f32', 64)", "x.t((at.kv & 1023) >> 3)",
        "holds up to q, kv = 512: dim 0 of x.t((at.kv & 1023) >> 3) is read from 0 to 64, outside 0..63 at "
        "q, kv = 513");
    expect_score("", "(at.q * 73856093 ~ at.kv) + at.q * 73856093", /* and taken as a number, too */
                 "holds up to q, kv = 30: at.q * 73856093 leaves 32 bits beyond");
}

/* ---- reads -----------------------------------------------------------------------------------------------
 */

static const char TABLE[] = "b = tensor('f32', 'h', 64)";

TEST(tables_that_are_too_short)
{
    expect_score(
        TABLE, "x.b(at.h, at.q - at.kv)",
        "holds up to q, kv = 64: dim 1 of x.b(at.h, at.q - at.kv) is read from 0 to 127, outside 0..63 at "
        "q, kv = 128");
    expect_score(TABLE, "x.b(at.h, at.kv - at.q)",
                 "dim 1 of x.b(at.h, at.kv - at.q) is read from -127 to 0, outside 0..63 at q, kv = 128");
    expect_score(TABLE, "x.b(at.h, min(at.q - at.kv, 63))", NULL);
    expect_score(TABLE, "x.b(at.h, min(at.q - at.kv, 64))",
                 "holds up to q, kv = 64: dim 1 of x.b(at.h, min(at.q - at.kv, 64)) is read from 0 to 64, "
                 "outside 0..63 "
                 "at q, kv = 128");
    expect_score(TABLE, "x.b(at.h, clamp(at.kv, 0, 63))", NULL);
    expect_score(TABLE, "x.b(at.h, abs(at.kv % -64))", NULL);
}

TEST(a_mask_keeps_indices_inside)
{
    expect("return attention { inputs = { b = tensor('f32', 'h', 64) },\n"
           "  mask_mod = function(at) return ge(at.q, at.kv) & lt(at.q - at.kv, 64) end,\n"
           "  score_mod = function(s, at, x) return s + x.b(at.h, at.q - at.kv) end }",
           "holds up to q, kv = 16777216", 0);
    expect(
        "return attention { inputs = { b = tensor('f32', 'h', 64) },\n"
        "  mask_mod = function(at) return ge(at.q, at.kv) & ~gt(at.q - at.kv, 64) end,\n"
        "  score_mod = function(s, at, x) return s + x.b(at.h, at.q - at.kv) end }",
        "holds up to q, kv = 64: dim 1 of x.b(at.h, at.q - at.kv) is read from 0 to 64, outside 0..63 at q, "
        "kv = 128",
        3);
    expect("return attention { inputs = { b = tensor('f32', 'h', 64) },\n" /* or: nothing is certain */
           "  mask_mod = function(at) return ge(at.q, at.kv) | lt(at.q - at.kv, 64) end,\n"
           "  score_mod = function(s, at, x) return s + x.b(at.h, at.q - at.kv) end }",
           "dim 1 of x.b(at.h, at.q - at.kv) is read from -127 to 127, outside 0..63 at q, kv = 128", 3);
    expect("return attention { inputs = { b = tensor('f32', 'kv') },\n" /* a mask itself is evaluated
                                                                           everywhere */
           "  mask_mod = function(at, x) return ge(at.q, at.kv) & gt(x.b(at.q - at.kv), 0.0) end }",
           "dim 0 of x.b(at.q - at.kv) is read from -127 to 127, outside 0..127 at q, kv = 128", 2);
}

TEST(choices_narrow_what_they_choose)
{
    expect_score("b = tensor('f32', 8)", "x.b(where(lt(at.kv, 8), at.kv, 7))", NULL);
    expect_score("b = tensor('f32', 8)", "x.b(where(ge(at.kv, 8), 7, at.kv))", NULL);
    expect_score(
        "b = tensor('f32', 8)", "where(lt(at.kv, 8), x.b(at.kv), 0.0)", /* both branches are read */
        "holds up to q, kv = 8: dim 0 of x.b(at.kv) is read from 0 to 127, outside 0..7 at q, kv = 128");
}

TEST(dims_of_their_own)
{
    const char *const in_slots = "holds up to q, kv = 16777216, where tensors are long enough in slots";
    expect_score("p = tensor('i32', 'b', 'slots', { range = { 0, 'leaves' } }), t = tensor('f32', 'leaves')",
                 "x.t(x.p(at.b, at.kv // 16))", in_slots);
    expect_score(
        "p = tensor('i32', 'b', 'slots', { range = { -1, 'leaves' } }), t = tensor('f32', 'leaves')",
        "x.t(x.p(at.b, at.kv // 16))",
        "dim 0 of x.t(x.p(at.b, at.kv // 16)) is read from -1 to 127, outside 0..127 at leaves = 128");
    expect_score("p = tensor('i32', 'b', 'slots', { range = { -1, 'leaves' } }), t = tensor('f32', 'leaves')",
                 "x.t(max(x.p(at.b, at.kv // 16), 0))", in_slots);
    expect_score("p = tensor('i32', 'b', 'kv'), t = tensor('f32', 'leaves')", "x.t(x.p(at.b, at.kv))",
                 "an index of x.t(x.p(at.b, at.kv)) comes from data without a declared range");
    expect_score("t = tensor('f32', 'leaves')", "x.t(clamp(at.kv, 0, at.n_leaves - 1))", NULL);
    expect_score("t = tensor('f32', 'h', 'n_rel')", "x.t(at.h, at.q - at.kv)",
                 "holds up to q, kv = 16777216, where tensors are long enough in n_rel");
    expect_score("t = tensor('f32', 8)", "x.t(at.h)",
                 "holds up to h = 8: dim 0 of x.t(at.h) is read from 0 to 127, outside 0..7 at h = 128");
    expect_score("t = tensor('f32', 'q')", "x.t(at.q)",
                 "dim 0 of x.t(at.q) is read from 127 to 127, outside 0..0 at q = 1, kv = 128");
    expect_score("t = tensor('f32', 'q')", "x.t(at.row)", NULL);
}

TEST(rows_and_maps)
{
    expect("return rowwise { inputs = { w = tensor('f32', 100) }, forward = function(x, at, p)\n"
           "  return x * p.w(at.i) end }",
           "holds up to n = 100: dim 0 of x.w(at.i) is read from 0 to 127, outside 0..99 at n = 128", 2);
    expect("return rowwise { forward = function(x, at)\n"
           "  return x + at.row * at.i end }",
           "holds up to rows, n = 46341: at.row * at.i leaves 32 bits beyond", 2);
    expect("return elementwise { over = { 'b', 't' }, results = { y = tensor('i32') }, forward = function(v, "
           "at)\n"
           "  return at.t * 8 + at.b end }",
           "holds up to b, t = 238609295: (at.t * 8) + at.b leaves 32 bits beyond", 2); /* 9 (n - 1) < 2^31 */
}

/* ---- at sizes that are given -----------------------------------------------------------------------------
 */

TEST(trouble_at_given_sizes)
{
    char text[300] = "";
    int line = 0;
    int64_t dim[SYM_COUNT] = {[SYM_ONE] = 1, [SYM_B] = 1,   [SYM_H] = 4, [SYM_H_KV] = 4,
                              [SYM_Q] = 64,  [SYM_KV] = 64, [SYM_D] = 8, [SYM_D_V] = 8};
    struct ir *ir =
        load_spec("return attention { mask_mod = causal, inputs = { b = tensor('f32', 'h', 64) },\n"
                  "  score_mod = function(s, at, x) return s + x.b(at.h, at.q - at.kv) end }");
    CHECK(!index_trouble(ir, dim, text, sizeof text, &line));
    dim[SYM_KV] = dim[SYM_Q] = 65;
    CHECK(index_trouble(ir, dim, text, sizeof text, &line));
    CHECK_STR(text, "dim 1 of x.b(at.h, at.q - at.kv) is read from 0 to 64, outside 0..63");
    CHECK_EQ(line, 2);
    ir_free(ir);
}

/* Sizes that the proofs choose have room for what is read. */
TEST(sizes_are_made_to_fit)
{
    struct proof proof[PROOF_MAX];
    struct ir *ir = load_spec(
        "return attention {\n"
        "  inputs = { p = tensor('i32', 'b', 'slots', { range = { 0, 'leaves' } }), t = tensor('f32', "
        "'leaves') },\n"
        "  mask_mod = function(at, x) return ge(at.q, at.kv) & ge(x.p(at.b, at.kv), 0) end,\n"
        "  score_mod = function(s, at, x) return s + x.t(x.p(at.b, at.kv)) end }");
    const int n = prove(ir, 3, proof); /* up to kv = 1500, where slots of 16 were outside */
    for (int i = 0; i < n; i++)
        CHECK_STR(proof[i].passed ? "" : proof[i].note, "");
    ir_free(ir);
}

/* ---- linear attention ----------------------------------------------------------------------------------
 */

#define DECAY(inputs, formula)                                                                               \
    "return linear_attention { inputs = { " inputs " },\n decay = function(at, x) return -exp(" formula      \
    ") end }"

TEST(tokens_of_linear_attention_are_a_length)
{
    expect(DECAY("g = tensor('f32', 'b', 'h', 't')", "x.g(at.b, at.h, at.t)"), "holds up to t = 16777216", 0);
    expect(DECAY("", "f32(at.t * at.len_t)"), "holds up to t = 46341: at.t * at.len_t leaves 32 bits beyond",
           2);
    expect(DECAY("g = tensor('f32', 'h', 'd_v')", "x.g(at.h, at.j)"), "holds up to t = 16777216", 0);
    expect(DECAY("g = tensor('f32', 'h_k', 'd')", "x.g(at.h, at.i)"),
           "dim 0 of x.g(at.h, at.i) is read from 0 to 127, outside 0..0 at h_k = 1, h = 128", 2);
}
