/*
 * problem_text.c: a problem from a line of text: defaults, choices, and what is wrong in a line by its place.
 */
#include "problem_call.h"
#include "check.h"
#include "sizes.h"
#include "gen/base/text.h"
#include "gen/gen.h"
#include "runtime/rt.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

TEST(line_of_text)
{
    struct problem p;
    lathe_error err;
    CHECK_EQ(parse("dtype=f16,b=2,h=16,h_kv=4,q=1000,kv=999,d=128,d_v=64,n_doc=5", &p, &err), LATHE_OK);
    CHECK_EQ(p.dtype[DTYPE_USUAL], LATHE_F16);
    CHECK_EQ(p.dim[SYM_B], 2);
    CHECK_EQ(p.dim[SYM_H], 16);
    CHECK_EQ(p.dim[SYM_H_KV], 4);
    CHECK_EQ(p.dim[SYM_Q], 1000);
    CHECK_EQ(p.dim[SYM_KV], 999);
    CHECK_EQ(p.dim[SYM_D], 128);
    CHECK_EQ(p.dim[SYM_D_V], 64);
    CHECK_EQ(p.dim[SYM_FREE], 5);
    CHECK_EQ(p.arg_dtype[BIAS], LATHE_F16);
    CHECK_EQ(p.arg_dtype[DOC], LATHE_I32);
    CHECK_EQ(p.arg_dtype[LSE], LATHE_F32);
    CHECK(arg_in(p.present, BIAS));
}

/* Each of q, k, v and o may have a dtype of its own in a line and in a problem; what takes such a problem is
   to come. */
TEST(a_mix_of_dtypes_is_said_and_refused)
{
    static const struct {
        const char *line, *usual, *dtypes, *refusal;
    } row[] = {
        {"n_doc=1,k=f16", "bf16", ",k=f16", "argument 'k': expected dtype bf16 as of 'q', given f16"},
        {"n_doc=1,dtype=f16,o=f32", "f16", ",o=f32", "argument 'o': expected dtype f16 as of 'q', given f32"},
        {"n_doc=1,v=f32,k=f32", "bf16", ",k=f32,v=f32",
         "argument 'k': expected dtype bf16 as of 'q', given f32"},
        {"n_doc=1,q=f16,dtype=bf16", "f16", ",k=bf16,v=bf16,o=bf16",
         "argument 'k': expected dtype f16 as of 'q', given bf16"},
    };
    const struct signature sig = attention_signature();
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct problem p;
        lathe_error err = {.status = LATHE_OK};
        struct text_buf text = {0};
        CHECK_EQ(parse(row[i].line, &p, &err), LATHE_ARG);
        CHECK_STR(err.text, row[i].refusal);
        CHECK_STR(lathe_dtype_text(p.dtype[DTYPE_USUAL]), row[i].usual);
        problem_text(&sig, &p, &text);
        CHECK_HAS(text.data, row[i].dtypes);
        text_free(&text);
        problem_built_text(&sig, &p, &text);
        CHECK_HAS(text.data, row[i].dtypes);
        text_free(&text);
    }
}

TEST(a_line_may_say_dtypes_that_are_alike)
{
    struct problem p;
    lathe_error err;
    const struct signature sig = attention_signature();
    struct text_buf text = {0};
    CHECK_EQ(parse("n_doc=1,q=1000,k=f16,v=f16,o=f16,q=f16", &p, &err), LATHE_OK);
    CHECK_EQ(p.dim[SYM_Q], 1000);
    for (int role = DTYPE_USUAL; role <= DTYPE_O; role++)
        CHECK_EQ(p.dtype[role], LATHE_F16);
    problem_built_text(&sig, &p, &text);
    CHECK_HAS(text.data, "dtype=f16,d=128");
    text_free(&text);
    CHECK_EQ(parse("n_doc=1,k=i32", &p, &err), LATHE_ARG);
    CHECK_HAS(err.text, "unknown name 'k'");
}

TEST(defaults_follow_what_is_given)
{
    struct problem p;
    lathe_error err;
    CHECK_EQ(parse("n_doc=1", &p, &err), LATHE_OK);
    CHECK_EQ(p.dtype[DTYPE_USUAL], LATHE_BF16);
    CHECK_EQ(p.dim[SYM_B], 1);
    CHECK_EQ(p.dim[SYM_H], p.dim[SYM_H_KV]);
    CHECK_EQ(p.dim[SYM_D], 128);
    CHECK_EQ(parse("n_doc=1,h_kv=3,kv=77,d_v=40", &p, &err), LATHE_OK);
    CHECK_EQ(p.dim[SYM_H], 3);
    CHECK_EQ(p.dim[SYM_Q], 77);
    CHECK_EQ(p.dim[SYM_D], 40);
    CHECK_EQ(parse("n_doc=1,q=0", &p, &err), LATHE_OK);
    CHECK_EQ(p.dim[SYM_KV], 0);
}

TEST(choices_of_inputs)
{
    struct problem p;
    lathe_error err;
    CHECK_EQ(parse("n_doc=1,bias=f32", &p, &err), LATHE_OK);
    CHECK_EQ(p.arg_dtype[BIAS], LATHE_F32);
    CHECK_EQ(parse("n_doc=1,bias=none", &p, &err), LATHE_OK);
    CHECK(!(arg_in(p.present, BIAS)));
    CHECK_EQ(parse("n_doc=1,bias=i32", &p, &err), LATHE_ARG);
    CHECK_HAS(err.text, "expected bias to be f32, f16, bf16 or none, given 'i32'");
    CHECK_EQ(parse("n_doc=1,doc=none", &p, &err), LATHE_ARG);
    CHECK_HAS(err.text, "unknown name 'doc'");
}

/* bias, named like the number of heads: a number is the size, a dtype or `none` the argument. */
TEST(an_argument_may_have_the_name_of_a_size)
{
    struct signature sig = attention_signature();
    struct problem p;
    lathe_error err;
    snprintf(sig.arg[BIAS].name, sizeof sig.arg[BIAS].name, "h");
    CHECK_EQ(problem_parse(&sig, "n_doc=1,h=4", &p, &err), LATHE_OK);
    CHECK_EQ(p.dim[SYM_H], 4);
    CHECK_EQ(p.arg_dtype[BIAS], LATHE_BF16);
    CHECK_EQ(problem_parse(&sig, "n_doc=1,h=f32,h=4", &p, &err), LATHE_OK);
    CHECK_EQ(p.dim[SYM_H], 4);
    CHECK_EQ(p.arg_dtype[BIAS], LATHE_F32);
    CHECK_EQ(problem_parse(&sig, "n_doc=1,h=none", &p, &err), LATHE_OK);
    CHECK(!(arg_in(p.present, BIAS)));
    CHECK_EQ(problem_parse(&sig, "n_doc=1,h=none,h=4,h=f16", &p, &err), LATHE_ARG);
    CHECK_HAS(err.text, "'h' is given twice");
    CHECK_EQ(problem_parse(&sig, "n_doc=1,h=i32", &p, &err), LATHE_ARG);
    CHECK_HAS(err.text, "expected h to be a whole number");
}

TEST(garbage_in_a_line)
{
    static const struct {
        const char *text;
        const char *part;
    } cases[] = {
        {"", "the size of dim 'n_doc' of input 'doc' has no default; add n_doc=SIZE"},
        {"n_doc", "expected NAME=VALUE separated by commas, given 'n_doc'"},
        {"=3", "expected NAME=VALUE"},
        {",", "expected NAME=VALUE"},
        {"q=3,", "expected NAME=VALUE"},
        {"q=3,,kv=3", "expected NAME=VALUE"},
        {"q=", "expected q to be a whole number from 0 to 2^31 - 1, given ''"},
        {"q=-1", "given '-1'"},
        {"q=+1", "given '+1'"},
        {"q=1e3", "given '1e3'"},
        {"q=0x10", "given '0x10'"},
        {"q= 1", "given ' 1'"},
        {"q=2147483648", "given '2147483648'"},
        {"q=99999999999999999999", "given '99999999999999999999'"},
        {"q=1,q=1", "'q' is given twice"},
        {"dtype=f16,dtype=f16", "'dtype' is given twice"},
        {"n_doc=1,bias=f16,q=2,bias=none", "'bias' is given twice"},
        {"n_doc=1,unaligned=q,unaligned=k", "'unaligned' is given twice"},
        {"dtype=int8", "expected dtype to be f32, f16 or bf16"},
        {"dtype=i32", "given 'i32'"},
        {"n=5", "unknown name 'n'; this spec knows dtype, b, h, h_kv, q, kv, seqs, page, most, pool, len_kv, "
                "n_h, d, d_v, n_doc, "
                "bias"},
        {"n_doc=1,h=4,h_kv=3", "expected h to be a multiple of h_kv, given h=4 and h_kv=3"},
        {"n_doc=1,d=0", "expected d >= 1, given d=0"},
        {"n_doc=1,h=65536,b=65536", "expected h * seqs below 2^31"},
        {"n_doc=1,q=2147483647,h=30000,d=256", "expected at most 2^44 elements"},
    };
    struct problem p;
    lathe_error err;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK_EQ(parse(cases[i].text, &p, &err), LATHE_ARG);
        CHECK_HAS(err.text, cases[i].part);
    }
}
