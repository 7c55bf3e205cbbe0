/*
 * problem.c: arguments and one-line problems become sizes and dtypes; every mistake is one sentence.
 * Signatures are written by hand: no spec is loaded.
 */
#include "check.h"
#include "gen.h"
#include "rt.h"

#include <stdio.h>
#include <string.h>

enum { Q, K, V, O, LSE, DOC, BIAS, Q_START, N_ATTENTION };

static struct sig_arg tensor_of(const char *name, enum arg_role role, const enum sym *sym, int n)
{
    struct sig_arg a = {.role = (uint8_t)role, .ndim = (uint8_t)n};
    snprintf(a.name, sizeof a.name, "%s", name);
    for (int i = 0; i < n; i++)
        a.dim[i].sym = (uint8_t)sym[i];
    return a;
}

static struct sig_arg main_of(const char *name, enum arg_role role, const enum sym *sym)
{
    struct sig_arg a = tensor_of(name, role, sym, 4);
    a.problem_dtype = true;
    a.unit_last = true;
    return a;
}

static const enum sym Q_DIMS[] = {SYM_B, SYM_H, SYM_Q, SYM_D};
static const enum sym K_DIMS[] = {SYM_B, SYM_H_KV, SYM_KV, SYM_D};
static const enum sym V_DIMS[] = {SYM_B, SYM_H_KV, SYM_KV, SYM_D_V};
static const enum sym O_DIMS[] = {SYM_B, SYM_H, SYM_Q, SYM_D_V};
static const enum sym X_DIMS[] = {SYM_ROWS0, SYM_ROWS1, SYM_ROWS, SYM_N};

/* q k v o, lse, doc i32 [b, n_doc], bias "float" [h, 128] optional, q_start */
static struct signature attention_signature(void)
{
    static const enum sym doc_dims[] = {SYM_B, SYM_FREE};
    static const enum sym bias_dims[] = {SYM_H, SYM_ONE};
    struct signature s = {.kind = "attention",
                          .builds_alignment = true,
                          .n_args = N_ATTENTION,
                          .n_free = 1,
                          .free_name = {"n_doc"}};
    s.arg[Q] = main_of("q", ROLE_IN, Q_DIMS);
    s.arg[K] = main_of("k", ROLE_IN, K_DIMS);
    s.arg[V] = main_of("v", ROLE_IN, V_DIMS);
    s.arg[O] = main_of("o", ROLE_OUT, O_DIMS);
    s.arg[LSE] = tensor_of("lse", ROLE_OUT_OPTIONAL, Q_DIMS, 3);
    s.arg[LSE].dtype = LATHE_F32;
    s.arg[LSE].optional = true;
    s.arg[DOC] = tensor_of("doc", ROLE_INPUT, doc_dims, 2);
    s.arg[DOC].dtype = LATHE_I32;
    s.arg[BIAS] = tensor_of("bias", ROLE_INPUT, bias_dims, 2);
    s.arg[BIAS].dim[1].literal = 128;
    s.arg[BIAS].optional = true;
    s.arg[Q_START] = tensor_of("q_start", ROLE_Q_START, NULL, 0);
    s.arg[Q_START].dtype = LATHE_I32;
    s.arg[Q_START].optional = true;
    return s;
}

static struct signature rowwise_signature(void)
{
    struct signature s = {.kind = "rowwise", .n_args = 3};
    s.arg[0] = main_of("x", ROLE_IN, X_DIMS);
    s.arg[1] = main_of("y", ROLE_OUT, X_DIMS);
    s.arg[0].leading_optional = true;
    s.arg[1].leading_optional = true;
    s.arg[2] = tensor_of("rstd", ROLE_OUT_OPTIONAL, X_DIMS, 3);
    s.arg[2].dtype = LATHE_F32;
    s.arg[2].optional = true;
    s.arg[2].leading_optional = true;
    return s;
}

/* A call that is right; tests spoil one thing. */
struct call {
    int64_t q[4], k[4], v[4], o[4], doc[2], q_strides[4];
    lathe_arg arg[6];
    int n;
};
static double storage[4]; /* something to point at; never read */

/* Far from it, and from each other. */
static void *elsewhere(unsigned place)
{
    return (void *)((uintptr_t)storage + ((uintptr_t)place << 24));
}

static void make_call(struct call *c)
{
    *c = (struct call){.q = {2, 4, 10, 64},
                       .k = {2, 2, 20, 64},
                       .v = {2, 2, 20, 32},
                       .o = {2, 4, 10, 32},
                       .doc = {2, 7},
                       .n = 5};
    c->arg[0] = (lathe_arg){"q", storage, LATHE_BF16, 4, c->q, NULL};
    c->arg[1] = (lathe_arg){"k", storage, LATHE_BF16, 4, c->k, NULL};
    c->arg[2] = (lathe_arg){"v", storage, LATHE_BF16, 4, c->v, NULL};
    c->arg[3] = (lathe_arg){"o", elsewhere(1), LATHE_BF16, 4, c->o, NULL};
    c->arg[4] = (lathe_arg){"doc", storage, LATHE_I32, 2, c->doc, NULL};
}

static lathe_status bind(const struct call *c, struct problem *p, lathe_error *err)
{
    const struct signature sig = attention_signature();
    memset(err, 0, sizeof *err);
    return problem_from_args(&sig, c->arg, c->n, true, p, err);
}

#define REFUSED(call_pointer, part)                                                                          \
    do {                                                                                                     \
        struct problem refused_problem;                                                                      \
        lathe_error refused_error;                                                                           \
        CHECK_EQ(bind((call_pointer), &refused_problem, &refused_error), LATHE_ARG);                         \
        CHECK_EQ(refused_error.status, LATHE_ARG);                                                           \
        CHECK_HAS(refused_error.text, (part));                                                               \
    } while (0)

TEST(arguments_bind_every_symbol)
{
    struct call c;
    struct problem p;
    lathe_error err;
    make_call(&c);
    CHECK_EQ(bind(&c, &p, &err), LATHE_OK);
    CHECK_EQ(p.dtype, LATHE_BF16);
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

TEST(wrong_names)
{
    struct call c;
    make_call(&c);
    c.arg[1].name = "key";
    REFUSED(&c, "argument 'key': unknown name; this spec takes q, k, v, o, lse, doc, bias, q_start");
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
    CHECK_EQ(p.dtype, LATHE_F64);
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
    c.q_strides[3] = 2;
    REFUSED(&c, "argument 'q': expected last stride 1, given 2");
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

static lathe_status parse(const char *text, struct problem *p, lathe_error *err)
{
    const struct signature sig = attention_signature();
    memset(err, 0, sizeof *err);
    return problem_parse(&sig, text, p, err);
}

TEST(line_of_text)
{
    struct problem p;
    lathe_error err;
    CHECK_EQ(parse("dtype=f16,b=2,h=16,h_kv=4,q=1000,kv=999,d=128,d_v=64,n_doc=5", &p, &err), LATHE_OK);
    CHECK_EQ(p.dtype, LATHE_F16);
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

TEST(defaults_follow_what_is_given)
{
    struct problem p;
    lathe_error err;
    CHECK_EQ(parse("n_doc=1", &p, &err), LATHE_OK);
    CHECK_EQ(p.dtype, LATHE_BF16);
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
        {"n=5", "unknown name 'n'; this spec knows dtype, b, h, h_kv, q, kv, d, d_v, n_doc, bias"},
        {"n_doc=1,h=4,h_kv=3", "expected h to be a multiple of h_kv, given h=4 and h_kv=3"},
        {"n_doc=1,d=0", "expected d >= 1, given d=0"},
        {"n_doc=1,h=65536,b=65536", "expected b * h below 2^31"},
        {"n_doc=1,q=2147483647,h=30000,d=256", "expected at most 2^44 elements"},
    };
    struct problem p;
    lathe_error err;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK_EQ(parse(cases[i].text, &p, &err), LATHE_ARG);
        CHECK_HAS(err.text, cases[i].part);
    }
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
    struct diag diag = {0};
    struct ir *ir = spec_load("causal", NULL, 0, &diag);
    CHECK(ir != NULL);
    signature_make(ir, LATHE_FORWARD, &sig);
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

TEST(an_input_by_row_takes_the_leading_dims_where_it_is_read_by_row_alone)
{
    static const char TEXT[] =
        "return rowwise { inputs = { g = tensor('f32', 'rows'), w = tensor('f32', 'rows') },\n"
        "forward = function(v, at, x) return v * x.g(at.row // 2) + x.w(at.row) end }";
    struct diag diag = {0};
    struct signature sig;
    struct problem p;
    lathe_error err;
    struct ir *ir = spec_load("rows.lua", TEXT, sizeof TEXT - 1, &diag);
    CHECK(ir != NULL);
    signature_make(ir, LATHE_FORWARD, &sig);
    CHECK_EQ(problem_parse(&sig, "dtype=f32,rows=3,n=4", &p, &err), LATHE_OK);
    CHECK_EQ(problem_parse(&sig, "dtype=f32,rows0=2,rows=3,n=4", &p, &err), LATHE_ARG);
    CHECK_HAS(err.text, "'g', whose dim 'rows' counts all rows");
    ir_free(ir);
}

TEST(parameters_of_rows_are_of_one_group_where_nothing_is_said)
{
    struct diag diag = {0};
    struct signature sig;
    struct problem p;
    lathe_error err;
    struct ir *ir = spec_load("group_norm", NULL, 0, &diag);
    CHECK(ir != NULL);
    signature_make(ir, LATHE_FORWARD, &sig);
    CHECK_EQ(problem_parse(&sig, "channels_of=3", &p, &err), LATHE_OK);
    CHECK_EQ(p.dim[SYM_FREE] * p.dim[SYM_FREE + 1], 3);
    CHECK_EQ(p.dim[SYM_FREE] + p.dim[SYM_FREE + 1], 4);
    ir_free(ir);
}

TEST(a_backward_pass_is_built_for_what_is_there)
{
    struct diag diag = {0};
    struct ir *ir = spec_load("causal", NULL, 0, &diag);
    struct signature sig;
    struct problem p;
    lathe_error err;
    CHECK(ir != NULL);
    signature_make(ir, LATHE_BACKWARD, &sig);
    const int dq = signature_find(&sig, "dq");
    const int dlse = signature_find(&sig, "dlse");
    CHECK(sig.backward && sig.arg[dq].presence_built && sig.arg[dlse].presence_built);
    CHECK(!sig.arg[signature_find(&sig, "q")].presence_built &&
          !sig.arg[signature_find(&sig, "q_start")].presence_built);
    CHECK_EQ(problem_parse(&sig, "dtype=bf16,d=64", &p, &err), LATHE_OK);
    CHECK(arg_in(p.present, dq) && !arg_in(p.present, dlse) && !p.deterministic); /* few losses read lse */
    CHECK_EQ(problem_parse(&sig, "dtype=bf16,d=64,dq=none,dlse=f32,deterministic=1", &p, &err), LATHE_OK);
    CHECK(!arg_in(p.present, dq) && arg_in(p.present, dlse) && p.deterministic);
    CHECK_EQ(problem_parse(&sig, "deterministic=yes", &p, &err), LATHE_ARG);
    CHECK_HAS(err.text, "0 or 1");
    CHECK_EQ(problem_parse(&sig, "dlse=f16", &p, &err), LATHE_ARG);
    signature_make(ir, LATHE_FORWARD, &sig);
    CHECK_EQ(problem_parse(&sig, "deterministic=1", &p, &err), LATHE_ARG);
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
        CHECK_EQ(p.dtype, DTYPE[k]);
    }
    s.n_args = 1; /* nothing has a choice */
    const lathe_arg alone = {"z", memory, LATHE_F16, 1, shape, NULL};
    struct problem p;
    lathe_error err = {.status = LATHE_OK};
    CHECK_EQ(problem_from_args(&s, &alone, 1, true, &p, &err), LATHE_OK);
    CHECK_EQ(p.dtype, LATHE_F16);
}
