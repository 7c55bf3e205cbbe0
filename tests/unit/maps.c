/*
 * maps.c: elementwise specs that are refused, with what to write instead.
 */
#include "check.h"
#include "gen/gen.h"

#include <string.h>

static void wrong(const char *text, const char *part)
{
    struct diag diag = {0};
    lathe_error err = {0};
    CHECK(spec_load("t.lua", text, strlen(text), &diag) == NULL);
    diag_to_error(&diag, LATHE_SPEC, &err);
    CHECK_HAS(err.text, part);
}

#define MAP(fields) "return elementwise { over = { 'rows', 'n' }, " fields " }"

TEST(wrong_maps_say_what_to_write)
{
    wrong("return elementwise { operands = {} }", "'over' is a list of 1 to 5 dims");
    wrong(MAP("results = { y = tensor('float') }"), "'forward' must be a function (v, at, x) -> results");
    wrong(MAP("results = {}, forward = function() end"), "'results' has none");
    wrong(MAP("results = { y = tensor('u8') }, forward = function() return 1 end"),
          "results are \"f32\", \"f16\"");
    wrong(MAP("results = { y = tensor('i32') }, forward = function() return 1.5 end"),
          "returns f32 for the i32 result 'y'; write i32(...)");
    wrong(MAP("results = { y = tensor('float', 'm') }, forward = function() return 1 end"),
          "dim 0 must be one of 'over'");
    wrong(MAP("results = { y = tensor('float', half('n'), 'rows') }, forward = function() return 1 end"),
          "pairs are along the last dim");
    wrong(MAP("results = { y = tensor('float', { alias = 'x' }) }, forward = function() return 1 end"),
          "is no operand of this map");
    wrong(MAP("operands = { x = tensor('f32') }, results = { y = tensor('float', { alias = 'x' }) }, forward "
              "= function(v) return v.x end"),
          "alias 'x' must have the same dtype, dims and pairs");
    wrong(MAP("results = { y = tensor('float', { dither = 'seed' }) }, forward = function() return 1 end"),
          "dither names a seed");
    wrong(MAP("results = { y = tensor('float') }, forward = function(v, at) return at.m end"),
          "'at' has no field 'm' here (rows n_rows n n_n)");
    wrong(MAP("results = { y = tensor('float') }, forward = function(v) return v.x end"),
          "there is no operand 'x' here");
    wrong(MAP("results = { y = tensor('float'), z = tensor('float') }, forward = function() return { y = 1 } "
              "end"),
          "does not return 'z'");
    wrong(MAP("results = { y = tensor('float') }, forward = function(v, at) return rowsum(f32(at.n)) end"),
          "looks at one point at a time");
    wrong(MAP("list = true, results = { y = tensor('float') }, forward = function() return 1 end"),
          "'over' has one dim");
    wrong(MAP("operands = { x = tensor('float'), dx = tensor('float') }, results = { y = tensor('float') }, "
              "forward = function(v) return v.x end"),
          "rename one");
    wrong(MAP("results = { y = tensor('float', half('n')) }, forward = function() return { y = 1 } end"),
          "'y' is a pair: return { y = { lo = value, hi = value } }");
}
