/*
 * problem.c: arguments and one-line problems become sizes and dtypes; every mistake is one sentence.
 * Most signatures are written by hand (problem_call.h).
 */
#include "problem_call.h"
#include "check.h"
#include "sizes.h"
#include "loaded.h"
#include "gen/gen.h"
#include "runtime/rt.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

TEST(arguments_bind_every_symbol)
{
    struct call c;
    struct problem p;
    lathe_error err;
    make_call(&c);
    CHECK_EQ(bind(&c, &p, &err), LATHE_OK);
    CHECK_EQ(p.dtype[DTYPE_USUAL], LATHE_BF16);
    CHECK_EQ(p.dim[SYM_B], 2);
    CHECK_EQ(p.dim[SYM_H], 4);
    CHECK_EQ(p.dim[SYM_H_KV], 2);
    CHECK_EQ(p.dim[SYM_Q], 10);
    CHECK_EQ(p.dim[SYM_KV], 20);
    CHECK_EQ(p.dim[SYM_D], 64);
    CHECK_EQ(p.dim[SYM_D_V], 32);
    CHECK_EQ(p.dim[SYM_FREE], 7);
    CHECK_EQ(p.present, 1u << Q | 1u << K | 1u << V | 1u << O | 1u << DOC);
    CHECK_EQ(p.arg_dtype[DOC], LATHE_I32);
    CHECK_EQ(p.arg_dtype[BIAS], LATHE_BF16);
}

TEST(order_of_arguments_does_not_matter)
{
    struct call c;
    struct problem p;
    lathe_error err;
    make_call(&c);
    const lathe_arg first = c.arg[0];
    c.arg[0] = c.arg[4];
    c.arg[4] = first;
    CHECK_EQ(bind(&c, &p, &err), LATHE_OK);
    CHECK_EQ(p.dim[SYM_Q], 10);
}

TEST(gradients_that_were_not_asked_for)
{
    struct call c;
    struct problem p;
    lathe_error err;
    struct signature sig = attention_signature();
    sig.backward = true;
    make_call(&c);
    c.arg[4].name = "dbias";
    CHECK_EQ(lathe__problem_from_args(&sig, c.arg, c.n, true, &p, &err), LATHE_ARG);
    CHECK_HAS(err.text,
              "argument 'dbias': 'bias' has no gradient in this spec; floats are declared with grad = true");
    c.arg[4].name = "dbiases";
    CHECK_EQ(lathe__problem_from_args(&sig, c.arg, c.n, true, &p, &err), LATHE_ARG);
    CHECK_HAS(err.text, "argument 'dbiases': unknown name");
}

TEST(wrong_names)
{
    struct call c;
    make_call(&c);
    c.arg[1].name = "key";
    REFUSED(&c, "argument 'key': unknown name; this spec takes q, k, v, o, lse, doc, bias, q_start");
    c.arg[1].name = "q_strat";
    REFUSED(&c, "lse, doc, bias, q_start; did you mean 'q_start'?");
    c.arg[1].name = NULL;
    REFUSED(&c, "unknown name");
    c.arg[1].name = "q";
    REFUSED(&c, "argument 'q': given twice");
    make_call(&c);
    c.n = 4;
    REFUSED(&c, "argument 'doc': missing; expected shape [b=2,n_doc]");
    c.n = -1;
    REFUSED(&c, "n=-1");
}

TEST(wrong_shapes)
{
    struct call c;
    make_call(&c);
    c.k[3] = 128;
    REFUSED(&c, "argument 'k': expected shape [b=2,h_kv=2,kv=20,d=64], given [2,2,20,128]");
    make_call(&c);
    c.arg[3].ndim = 3;
    REFUSED(&c, "argument 'o': expected shape [b=2,h=4,q=10,d_v=32], given [2,4,10]");
    make_call(&c);
    c.arg[3].ndim = 77;
    REFUSED(&c, "argument 'o': expected 4 dims, given 77");
    make_call(&c);
    c.q[0] = -1;
    REFUSED(&c, "argument 'q': expected sizes from 0 to 2^31 - 1, given -1 in dim 0");
    c.q[0] = INT64_C(1) << 31;
    REFUSED(&c, "given 2147483648 in dim 0");
    make_call(&c);
    c.arg[2].shape = NULL;
    REFUSED(&c, "argument 'v': expected a shape of 4 dims, given NULL");
    make_call(&c);
    c.k[1] = c.v[1] = 3;
    REFUSED(&c, "expected h to be a multiple of h_kv, given h=4 and h_kv=3");
    c.k[1] = c.v[1] = 0;
    REFUSED(&c, "expected h_kv >= 1");
}

TEST(wrong_literal_dim)
{
    struct call c;
    static const int64_t bias[] = {4, 127};
    make_call(&c);
    c.arg[c.n++] = (lathe_arg){"bias", storage, LATHE_F32, 2, bias, NULL};
    REFUSED(&c, "argument 'bias': expected shape [h=4,128], given [4,127]");
}

TEST(wrong_dtypes)
{
    struct call c;
    make_call(&c);
    c.arg[2].dtype = LATHE_F16;
    REFUSED(&c, "argument 'v': expected dtype bf16 as of 'q', given f16");
    make_call(&c);
    c.arg[0].dtype = LATHE_I32;
    REFUSED(&c, "argument 'q': expected dtype f32, f16 or bf16, given i32");
    c.arg[0].dtype = (lathe_dtype)99;
    REFUSED(&c, "argument 'q': expected dtype");
    make_call(&c);
    c.arg[4].dtype = LATHE_F32;
    REFUSED(&c, "argument 'doc': expected dtype i32, given f32");
}

TEST(f64_goes_with_f64)
{
    struct call c;
    struct problem p;
    lathe_error err;
    static const int64_t lse[] = {2, 4, 10};
    make_call(&c);
    c.arg[c.n++] = (lathe_arg){"lse", elsewhere(2), LATHE_F64, 3, lse, NULL};
    REFUSED(&c, "argument 'lse': expected dtype f32, given f64");
    const lathe_arg last = c.arg[5]; /* the mistake is seen from either side */
    c.arg[5] = c.arg[0];
    c.arg[0] = last;
    REFUSED(&c, "argument 'lse': expected dtype f32, given f64");
    for (int i = 1; i < 6; i++)
        c.arg[i].dtype = i == 4 ? LATHE_I32 : LATHE_F64;
    CHECK_EQ(bind(&c, &p, &err), LATHE_OK);
    CHECK_EQ(p.dtype[DTYPE_USUAL], LATHE_F64);
}

TEST(strides)
{
    struct call c;
    struct problem p;
    lathe_error err;
    make_call(&c);
    c.arg[0].strides = c.q_strides;
    memcpy(c.q_strides, (int64_t[]){64, 64 * 2, 64 * 8, 1}, sizeof c.q_strides);
    CHECK_EQ(bind(&c, &p, &err), LATHE_OK);
    CHECK_EQ(p.unaligned, 0);
    c.q_strides[3] = 2; /* its rows are copied, as those that are not aligned are */
    CHECK_EQ(bind(&c, &p, &err), LATHE_OK);
    CHECK(arg_in(p.unaligned, 0));
    c.q_strides[3] = 0;
    CHECK_EQ(bind(&c, &p, &err), LATHE_OK);
    CHECK(arg_in(p.unaligned, 0));
    c.q_strides[3] = 1;
    c.q_strides[1] = -64;
    REFUSED(&c, "argument 'q': expected strides >= 0, given -64 in dim 1");
    c.q_strides[1] = INT64_MAX / 2;
    REFUSED(&c, "argument 'q': expected at most 2^44 elements");
    c.q_strides[1] = 0; /* a broadcast input is fine, an output is not */
    CHECK_EQ(bind(&c, &p, &err), LATHE_OK);
    make_call(&c);
    memcpy(c.q_strides, (int64_t[]){0, 32, 128, 1}, sizeof c.q_strides);
    c.arg[3].strides = c.q_strides;
    REFUSED(&c, "argument 'o': an output cannot have stride 0 in dim 0 of size 2");
}

TEST(data_pointers)
{
    struct call c;
    struct problem p;
    lathe_error err;
    make_call(&c);
    c.arg[1].data = NULL;
    REFUSED(&c, "argument 'k': expected a data pointer, given NULL");
    c.arg[1].data = (char *)storage + 1;
    REFUSED(&c, "argument 'k': expected data aligned to its element of 2 bytes");
    make_call(&c);
    c.k[2] = c.v[2] = 0; /* an empty tensor needs no data */
    c.arg[1].data = NULL;
    c.arg[2].data = NULL;
    CHECK_EQ(bind(&c, &p, &err), LATHE_OK);
    CHECK_EQ(p.dim[SYM_KV], 0);
    make_call(&c);
    for (int i = 0; i < c.n; i++)
        c.arg[i].data = NULL;
    const struct signature sig = attention_signature();
    CHECK_EQ(problem_from_args(&sig, c.arg, c.n, false, &p, &err), LATHE_OK);
}

TEST(scalars_need_their_value)
{
    struct call c;
    struct problem p;
    lathe_error err;
    int32_t start = 3;
    make_call(&c);
    c.arg[c.n++] = (lathe_arg){"q_start", &start, LATHE_I32, 0, NULL, NULL};
    CHECK_EQ(bind(&c, &p, &err), LATHE_OK);
    CHECK(arg_in(p.present, Q_START));
    c.arg[5].data = NULL;
    REFUSED(&c, "argument 'q_start': expected a data pointer");
    c.arg[5].data = &start;
    c.arg[5].dtype = LATHE_F32;
    REFUSED(&c, "argument 'q_start': expected dtype i32, given f32");
}

TEST(optional_output_may_be_null)
{
    struct call c;
    struct problem p;
    lathe_error err;
    static const int64_t lse[] = {2, 4, 10};
    make_call(&c);
    c.arg[c.n++] = (lathe_arg){"lse", NULL, LATHE_F32, 3, lse, NULL};
    CHECK_EQ(bind(&c, &p, &err), LATHE_OK);
    CHECK(!(arg_in(p.present, LSE)));
}

TEST(rows_may_lack_leading_dims)
{
    const struct signature sig = rowwise_signature();
    static const int64_t shape[] = {3, 5, 7, 9};
    struct problem p;
    lathe_error err = {0};
    void *apart = (void *)((uintptr_t)storage + (1u << 20));
    for (int ndim = 1; ndim <= 4; ndim++) {
        const int64_t *s = shape + 4 - ndim;
        const lathe_arg args[] = {{"x", storage, LATHE_F32, ndim, s, NULL},
                                  {"y", storage, LATHE_F32, ndim, s, NULL},
                                  {"rstd", apart, LATHE_F32, ndim - 1, s, NULL}};
        CHECK_EQ(problem_from_args(&sig, args, 3, true, &p, &err), LATHE_OK);
        CHECK_EQ(p.dim[SYM_ROWS0], ndim > 3 ? 3 : 1);
        CHECK_EQ(p.dim[SYM_ROWS1], ndim > 2 ? 5 : 1);
        CHECK_EQ(p.dim[SYM_ROWS], ndim > 1 ? 7 : 1);
        CHECK_EQ(p.dim[SYM_N], 9);
    }
    const lathe_arg none[] = {{"x", storage, LATHE_F32, 0, shape, NULL}};
    CHECK_EQ(problem_from_args(&sig, none, 1, true, &p, &err), LATHE_ARG);
    CHECK_HAS(err.text, "argument 'x': expected shape [(rows0,rows1,rows),n]");
}

TEST(too_many_rows)
{
    const struct signature sig = rowwise_signature();
    struct problem p;
    lathe_error err = {0};
    CHECK_EQ(problem_parse(&sig, "rows=65536,rows1=65536,n=8", &p, &err), LATHE_ARG);
    CHECK_HAS(err.text, "expected rows0 * rows1 * rows below 2^31");
    const struct bound_args none = {0}; /* a kernel's counter goes one round beyond the last row */
    CHECK_EQ(problem_parse(&sig, "rows=32768,rows1=32768,n=8", &p, &err), LATHE_OK);
    CHECK_EQ(lathe__args_fit_gpu(&sig, &p, &none, &err), LATHE_OK);
    CHECK_EQ(problem_parse(&sig, "rows=32769,rows1=32768,n=8", &p, &err), LATHE_OK);
    CHECK_EQ(lathe__args_fit_gpu(&sig, &p, &none, &err), LATHE_ARG);
    CHECK_HAS(err.text, "expected at most 2^30 rows in one launch on a GPU, given 1073774592");
    CHECK_EQ(problem_parse(&sig, "rows=2147483647,rows1=2147483647,rows0=2147483647,n=2147483647", &p, &err),
             LATHE_ARG);
}

TEST(error_record_may_be_absent)
{
    const struct signature sig = attention_signature();
    struct problem p;
    CHECK_EQ(problem_parse(&sig, "what", &p, NULL), LATHE_ARG);
    CHECK_EQ(problem_parse(&sig, NULL, &p, NULL), LATHE_ARG);
}

TEST(unaligned_rows_are_found)
{
    static _Alignas(16) unsigned char memory[64];
    struct signature sig;
    struct problem p;
    lathe_error err;
    struct ir *ir = load_signed("causal", LATHE_FORWARD, &sig);
    const int64_t shape[] = {1, 2, 3, 64};
    int64_t q_strides[] = {1000, 192, 64, 1}; /* a dim of size 1 may have any stride */
    lathe_arg args[] = {{"q", memory, LATHE_BF16, 4, shape, q_strides},
                        {"k", memory, LATHE_BF16, 4, shape, NULL},
                        {"v", memory, LATHE_BF16, 4, shape, NULL},
                        {"o", NULL, LATHE_BF16, 4, shape, NULL}};
    CHECK_EQ(problem_from_args(&sig, args, 4, false, &p, &err), LATHE_OK);
    CHECK_EQ(p.unaligned, 0);
    q_strides[2] = 68;
    args[1].data = memory + 2;
    CHECK_EQ(problem_from_args(&sig, args, 4, false, &p, &err), LATHE_OK);
    CHECK_EQ(p.unaligned, 3); /* q by its stride, k by its data */
    CHECK_EQ(p.folded, 0);
    q_strides[1] = 0; /* one head for both */
    CHECK_EQ(problem_from_args(&sig, args, 4, false, &p, &err), LATHE_OK);
    CHECK_EQ(p.folded, 1);
    q_strides[1] = (int64_t)1 << 39; /* elements of two bytes */
    CHECK_EQ(problem_from_args(&sig, args, 4, false, &p, &err), LATHE_OK);
    CHECK_EQ(p.folded, 1);
    q_strides[1]--;
    CHECK_EQ(problem_from_args(&sig, args, 4, false, &p, &err), LATHE_OK);
    CHECK_EQ(p.folded, 0);
    ir_free(ir);
}

/* Sequences of which each has an end of its own lie whole tokens apart, or have another kernel. */
TEST(batches_that_do_not_lie_whole_tokens_apart_are_found)
{
    static _Alignas(16) unsigned char memory[64];
    struct signature sig;
    struct problem p;
    lathe_error err;
    struct ir *ir = load_signed("causal", LATHE_FORWARD, &sig);
    const int64_t shape[] = {2, 2, 3, 64};
    const int64_t seqs[] = {2};
    int64_t q_strides[] = {3 * 128 + 8, 64, 128, 1};
    lathe_arg args[] = {{"q", memory, LATHE_BF16, 4, shape, q_strides},
                        {"k", memory, LATHE_BF16, 4, shape, NULL},
                        {"v", memory, LATHE_BF16, 4, shape, NULL},
                        {"o", NULL, LATHE_BF16, 4, shape, NULL},
                        {"used_kv", memory, LATHE_I32, 1, seqs, NULL}};
    CHECK_EQ(problem_from_args(&sig, args, 4, false, &p, &err), LATHE_OK);
    CHECK_EQ(p.folded, 0);
    CHECK_EQ(problem_from_args(&sig, args, 5, false, &p, &err), LATHE_OK);
    CHECK_EQ(p.folded, 1);
    q_strides[0] = 4 * 128;
    CHECK_EQ(problem_from_args(&sig, args, 5, false, &p, &err), LATHE_OK);
    CHECK_EQ(p.folded, 0);
    q_strides[0] = ((int64_t)(RAGGED_ROWS - 3) / 2) * 128; /* TMA counts 2^30 tokens, of both batches */
    CHECK_EQ(problem_from_args(&sig, args, 5, false, &p, &err), LATHE_OK);
    CHECK_EQ(p.folded, 0);
    q_strides[0] += 128;
    CHECK_EQ(problem_from_args(&sig, args, 5, false, &p, &err), LATHE_OK);
    CHECK_EQ(p.folded, 1);
    ir_free(ir);
}

TEST(an_input_by_row_takes_the_leading_dims_where_it_is_read_by_row_alone)
{
    static const char TEXT[] =
        "return rowwise { inputs = { g = tensor('f32', 'rows'), w = tensor('f32', 'rows') },\n"
        "forward = function(v, at, x) return v * x.g(at.row // 2) + x.w(at.row) end }";
    struct signature sig;
    struct problem p;
    lathe_error err;
    struct ir *ir = load_signed(TEXT, LATHE_FORWARD, &sig);
    CHECK_EQ(problem_parse(&sig, "dtype=f32,rows=3,n=4", &p, &err), LATHE_OK);
    CHECK_EQ(problem_parse(&sig, "dtype=f32,rows0=2,rows=3,n=4", &p, &err), LATHE_ARG);
    CHECK_HAS(err.text, "'g', whose dim 'rows' counts all rows");
    ir_free(ir);
}

TEST(parameters_of_rows_are_of_one_group_where_nothing_is_said)
{
    struct signature sig;
    struct problem p;
    lathe_error err;
    struct ir *ir = load_signed("group_norm", LATHE_FORWARD, &sig);
    CHECK_EQ(problem_parse(&sig, "channels_of=3", &p, &err), LATHE_OK);
    CHECK_EQ(p.dim[SYM_FREE] * p.dim[SYM_FREE + 1], 3);
    CHECK_EQ(p.dim[SYM_FREE] + p.dim[SYM_FREE + 1], 4);
    ir_free(ir);
}

TEST(a_backward_pass_is_built_for_what_is_there)
{
    struct signature sig;
    struct problem p;
    lathe_error err;
    struct ir *ir = load_signed("causal", LATHE_BACKWARD, &sig);
    const int dq = lathe__arg_find(&sig, "dq", 0);
    const int dlse = lathe__arg_find(&sig, "dlse", 0);
    CHECK(sig.backward && sig.arg[dq].presence_built && sig.arg[dlse].presence_built);
    CHECK(!sig.arg[lathe__arg_find(&sig, "q", 0)].presence_built &&
          !sig.arg[lathe__arg_find(&sig, "q_start", 0)].presence_built);
    CHECK_EQ(problem_parse(&sig, "dtype=bf16,d=64", &p, &err), LATHE_OK);
    CHECK(arg_in(p.present, dq) && !arg_in(p.present, dlse) && !p.deterministic); /* few losses read lse */
    CHECK_EQ(problem_parse(&sig, "dtype=bf16,d=64,dq=none,dlse=f32,deterministic=1", &p, &err), LATHE_OK);
    CHECK(!arg_in(p.present, dq) && arg_in(p.present, dlse) && p.deterministic);
    CHECK_EQ(problem_parse(&sig, "deterministic=yes", &p, &err), LATHE_ARG);
    CHECK_HAS(err.text, "0, 1 or batch");
    CHECK_EQ(problem_parse(&sig, "dlse=f16", &p, &err), LATHE_ARG);
    signature_make(ir, LATHE_FORWARD, &sig);
    CHECK_EQ(problem_parse(&sig, "deterministic=1", &p, &err), LATHE_OK);
    CHECK_EQ(p.deterministic, DETERMINISTIC_NOT); /* a forward pass has one order anyway */
    CHECK_EQ(problem_parse(&sig, "deterministic=batch", &p, &err), LATHE_OK);
    CHECK_EQ(p.deterministic, DETERMINISTIC_BATCH);
    ir_free(ir);
}

/* One line serves both passes: what the other one knows is looked at, and changes nothing. */
TEST(a_pass_takes_the_names_of_the_other)
{
    struct signature sig;
    struct problem p;
    struct problem plain;
    lathe_error err;
    struct ir *ir = load_signed("causal", LATHE_FORWARD, &sig);
    const char *const text = "d=64,unaligned=q+do+dq,deterministic=1,dlse=f32,dq=none,o=none,lse=none";
    CHECK_EQ(problem_parse_of(ir, &sig, text, &p, &err), LATHE_OK);
    CHECK_EQ(problem_parse_of(ir, &sig, "d=64,unaligned=q", &plain, &err), LATHE_OK);
    CHECK(memcmp(&p, &plain, sizeof p) == 0);
    CHECK(problem_is_of(ir, &sig, text) && !problem_is_of(ir, &sig, "dls=f32"));
    CHECK_EQ(problem_named_of(ir, &sig, "dlse=f32", &p, &err), LATHE_OK);
    CHECK_EQ(p.dim[SYM_D], -1);
    ir_free(ir);
}

TEST(what_neither_pass_knows_is_refused)
{
    static const struct {
        const char *text;
        const char *part;
    } cases[] = {
        {"dls=f32", "unknown name 'dls'; this spec knows dtype, b, h, h_kv, q, kv, seqs, page, most, pool, "
                    "len_kv, n_h, d, "
                    "d_v, cu_q (i32 or none), cu_kv (i32 or none), used_kv (i32 or none), pages (i32 or "
                    "none), part_o (f32 or none), part_rows (f32 or none), unaligned, folded, deterministic"},
        {"dlse=f16", "expected dlse to be f32 or none, given 'f16'"},
        {"deterministic=2", "expected deterministic to be 0, 1 or batch"},
        {"dlse=f32,dlse=f32", "'dlse' is given twice"},
        {"unaligned=do+do", "expected unaligned to be names of tensors"},
        {"unaligned=x", "expected unaligned to be names of tensors"},
    };
    struct signature sig;
    struct problem p;
    lathe_error err;
    struct ir *ir = load_signed("causal", LATHE_FORWARD, &sig);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK_EQ(problem_parse_of(ir, &sig, cases[i].text, &p, &err), LATHE_ARG);
        CHECK_HAS(err.text, cases[i].part);
    }
    ir_free(ir);
}

/* A dtype that the spec fixes says nothing of the problem's, wherever it stands. */
TEST(the_problems_dtype_is_of_tensors_that_have_the_choice)
{
    static const enum sym dims[] = {SYM_FREE};
    static const int64_t shape[] = {3};
    static char memory[64];
    struct signature s = {.kind = "elementwise", .n_args = 2, .n_free = 1, .free_name = {"n"}};
    s.arg[0] = tensor_of("z", ROLE_IN, dims, 1);
    s.arg[0].dtype = LATHE_F16;
    s.arg[1] = tensor_of("x", ROLE_IN, dims, 1);
    for (int k = 0; k < 3; k++) {
        static const lathe_dtype DTYPE[] = {LATHE_BF16, LATHE_F32, LATHE_F64};
        const lathe_arg args[] = {{"z", memory, LATHE_F16, 1, shape, NULL},
                                  {"x", memory + 32, DTYPE[k], 1, shape, NULL}};
        struct problem p;
        lathe_error err = {.status = LATHE_OK};
        CHECK_EQ(problem_from_args(&s, args, 2, true, &p, &err), LATHE_OK);
        CHECK_EQ(p.dtype[DTYPE_USUAL], DTYPE[k]);
    }
    s.n_args = 1; /* nothing has a choice */
    const lathe_arg alone = {"z", memory, LATHE_F16, 1, shape, NULL};
    struct problem p;
    lathe_error err = {.status = LATHE_OK};
    CHECK_EQ(problem_from_args(&s, &alone, 1, true, &p, &err), LATHE_OK);
    CHECK_EQ(p.dtype[DTYPE_USUAL], LATHE_F16);
}

/* A size that is another one, but beside an argument that gives it a value of its own. */
TEST(sizes_that_are_tied_to_others)
{
    static const char TEXT[] =
        "return linear_attention { decay = function(at) return exp2(-5.0 - at.h) end }";
    static const struct {
        const char *line;
        const char *text; /* problem_text, or: */
        const char *refused;
    } row[] = {
        {"b=3", "dtype=bf16,b=3,h=8,h_k=8,t=1024,d=128,d_v=128", NULL},
        {"cu=i32", "dtype=bf16,b=1,h=8,h_k=8,t=1024,seqs=4,d=128,d_v=128", NULL},
        {"seqs=5,h_k=2,h=4", "dtype=bf16,b=1,h=4,h_k=2,t=1024,seqs=5,d=128,d_v=128", NULL},
        {"b=2,slots=7", "dtype=bf16,b=2,h=8,h_k=8,t=1024,slots=7,d=128,d_v=128", NULL},
        {"b=2,seqs=5", NULL,
         "argument 'cu': expected b=1, since packed sequences lie one behind the other in one batch, given "
         "b=2"},
        {"h=5,h_k=2", NULL, "expected h to be a multiple of h_k, given h=5 and h_k=2"},
        {"d=0", NULL, "problem: expected d >= 1, given d=0"},
    };
    struct signature sig;
    struct ir *ir = load_signed(TEXT, LATHE_FORWARD, &sig);
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        struct problem p;
        struct text_buf text = {0};
        lathe_error err = {.status = LATHE_OK};
        const lathe_status status = problem_parse(&sig, row[i].line, &p, &err);
        CHECK_EQ(status, row[i].text ? LATHE_OK : LATHE_ARG);
        if (row[i].refused)
            CHECK_HAS(err.text, row[i].refused);
        if (!row[i].text)
            continue;
        problem_text(&sig, &p, &text);
        CHECK_STR(text.data, row[i].text);
        text_free(&text);
        CHECK_EQ(problem_has_named(&sig, &p, "cu"), p.dim[SYM_SEQS] != p.dim[SYM_B]);
        CHECK_EQ(problem_has_named(&sig, &p, "state_index"), p.dim[SYM_SLOTS] != p.dim[SYM_SEQS]);
    }
    ir_free(ir);
}

/* Arguments that leave a tied size unbound, and a state in the place of the one before. */
TEST(a_state_may_lie_where_the_one_before_does)
{
    static const char TEXT[] =
        "return linear_attention { decay = function(at) return exp2(-5.0 - at.h) end }";
    static const int64_t rows[4] = {2, 2, 5, 16};
    static const int64_t states[4] = {2, 2, 16, 16};
    struct signature sig;
    struct problem p;
    lathe_error err = {.status = LATHE_OK};
    struct ir *ir = load_signed(TEXT, LATHE_FORWARD, &sig);
    lathe_arg args[] = {{"q", storage, LATHE_BF16, 4, rows, NULL},
                        {"k", storage, LATHE_BF16, 4, rows, NULL},
                        {"v", storage, LATHE_BF16, 4, rows, NULL},
                        {"o", elsewhere(1), LATHE_BF16, 4, rows, NULL},
                        {"state", elsewhere(2), LATHE_F32, 4, states, NULL},
                        {"state_out", elsewhere(2), LATHE_F32, 4, states, NULL}};
    CHECK_EQ(problem_from_args(&sig, args, 4, true, &p, &err), LATHE_OK);
    CHECK_EQ(p.dim[SYM_SEQS], 2);
    CHECK_EQ(p.dim[SYM_SLOTS], 2);
    CHECK_EQ(problem_from_args(&sig, args, 6, true, &p, &err), LATHE_OK);
    args[5].data = (char *)args[5].data + 64;
    CHECK_EQ(problem_from_args(&sig, args, 6, true, &p, &err), LATHE_ARG);
    CHECK_HAS(err.text, "argument 'state_out': expected memory of its own, given some of that of 'state'");
    args[5].data = args[3].data;
    CHECK_EQ(problem_from_args(&sig, args, 6, true, &p, &err), LATHE_ARG);
    ir_free(ir);
}
