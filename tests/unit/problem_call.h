/*
 * problem_call.h: signatures of a call of each kind and arguments for them, for the rooms of problems.
 */
#ifndef LATHE_TESTS_PROBLEM_CALL_H
#define LATHE_TESTS_PROBLEM_CALL_H

#include "check.h"
#include "sizes.h"
#include "gen/gen.h"
#include "runtime/rt.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { Q, K, V, O, LSE, DOC, BIAS, Q_START, N_ATTENTION };

static inline struct sig_arg tensor_of(const char *name, enum arg_role role, const enum sym *sym, int n)
{
    struct sig_arg a = {.role = (uint8_t)role, .ndim = (uint8_t)n};
    snprintf(a.name, sizeof a.name, "%s", name);
    for (int i = 0; i < n; i++)
        a.dim[i].sym = (uint8_t)sym[i];
    return a;
}

static inline struct sig_arg main_of(const char *name, enum arg_role role, enum dtype_role dtype,
                                     const enum sym *sym)
{
    struct sig_arg a = tensor_of(name, role, sym, 4);
    a.dtype_role = (uint8_t)dtype;
    a.unit_last = true;
    return a;
}

static const enum sym Q_DIMS[] = {SYM_B, SYM_H, SYM_Q, SYM_D};
static const enum sym K_DIMS[] = {SYM_B, SYM_H_KV, SYM_KV, SYM_D};
static const enum sym V_DIMS[] = {SYM_B, SYM_H_KV, SYM_KV, SYM_D_V};
static const enum sym O_DIMS[] = {SYM_B, SYM_H, SYM_Q, SYM_D_V};
static const enum sym X_DIMS[] = {SYM_ROWS0, SYM_ROWS1, SYM_ROWS, SYM_N};

/* q k v o, lse, doc i32 [b, n_doc], bias "float" [h, 128] optional, q_start */
static inline struct signature attention_signature(void)
{
    static const enum sym doc_dims[] = {SYM_B, SYM_FREE};
    static const enum sym bias_dims[] = {SYM_H, SYM_ONE};
    struct signature s = {.kind = "attention",
                          .builds_alignment = true,
                          .n_args = N_ATTENTION,
                          .n_free = 1,
                          .free_name = {"n_doc"}};
    s.arg[Q] = main_of("q", ROLE_IN, DTYPE_Q, Q_DIMS);
    s.arg[K] = main_of("k", ROLE_IN, DTYPE_K, K_DIMS);
    s.arg[V] = main_of("v", ROLE_IN, DTYPE_V, V_DIMS);
    s.arg[Q].any_last = s.arg[K].any_last = s.arg[V].any_last = true;
    s.arg[O] = main_of("o", ROLE_OUT, DTYPE_O, O_DIMS);
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
    take_sizes(&s, "causal");
    return s;
}

static inline struct signature rowwise_signature(void)
{
    struct signature s = {.kind = "rowwise", .n_args = 3};
    s.arg[0] = main_of("x", ROLE_IN, DTYPE_X, X_DIMS);
    s.arg[1] = main_of("y", ROLE_OUT, DTYPE_X, X_DIMS);
    s.arg[0].leading_optional = true;
    s.arg[1].leading_optional = true;
    s.arg[2] = tensor_of("rstd", ROLE_OUT_OPTIONAL, X_DIMS, 3);
    s.arg[2].dtype = LATHE_F32;
    s.arg[2].optional = true;
    s.arg[2].leading_optional = true;
    take_sizes(&s, "softmax");
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
static inline void *elsewhere(unsigned place)
{
    return (void *)((uintptr_t)storage + ((uintptr_t)place << 24));
}

static inline void make_call(struct call *c)
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

static inline lathe_status bind(const struct call *c, struct problem *p, lathe_error *err)
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

static inline lathe_status parse(const char *text, struct problem *p, lathe_error *err)
{
    const struct signature sig = attention_signature();
    memset(err, 0, sizeof *err);
    return problem_parse(&sig, text, p, err);
}

#endif
