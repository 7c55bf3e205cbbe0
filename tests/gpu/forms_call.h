/*
 * forms_call.h: a call in one of its forms: its tensors in device memory, and how it is launched.
 */
#ifndef LATHE_TESTS_GPU_FORMS_CALL_H
#define LATHE_TESTS_GPU_FORMS_CALL_H

#include "cases.h"

enum {
    MOST_SEQS = 6,
    TENSORS = 14,
    PAGED = 1,
    PACKED = 2,
    PARTS = 4,
    GRAPH = 8,
    FORMS = 16,
    PARTS_OF_ROW = 2
};

struct form_case {
    const char *name;
    const char *spec, *text; /* a shipped one's name, or a text */
    const char *final;
    int states;   /* of a row, where keys may be cut into parts whatever their places are; 0: they may not */
    bool started; /* it has the input `start`, by sequence */
    bool even;    /* sequences have as many queries, so tiles are alike in every form */
    int n, q[MOST_SEQS], kv[MOST_SEQS];
    int h, h_kv, d, page, most;
    int d2; /* of a second pair of q and k; 0: there is none */
};

struct values { /* of all sequences, one behind the other, [tokens, heads, d] */
    double *q, *k, *v, *q2, *k2, *o, *final;
    int first_q[MOST_SEQS + 1], first_kv[MOST_SEQS + 1];
    int most_q;
    int32_t start[MOST_SEQS];
};

struct call {
    const struct side *side;
    int n;
    lathe_arg arg[TENSORS];
    int64_t shape[TENSORS][CASE_DIMS], stride[TENSORS][CASE_DIMS];
    void *memory[TENSORS];
};

struct form {
    int form; /* PAGED, PACKED, PARTS */
    lathe_dtype dtype;
    const struct form_case *c;
    const struct values *x;
    int32_t *pages;
};

void call_close(struct call *call);
/* An argument without memory, compact. */
lathe_arg *call_add(struct call *call, const char *name, lathe_dtype dtype, int ndim, const int64_t *shape);
/* [batches, heads, tokens, d] with tokens ahead of heads; d is 0: values of rows. */
lathe_arg *call_add_rows(struct call *call, const char *name, lathe_dtype dtype, int64_t batches,
                         int64_t heads, int64_t tokens, int64_t d);
lathe_status call_launch(const struct side *side, lathe_spec *spec, lathe_pass pass, const lathe_arg *arg,
                         int n, lathe_error *err);

/* Every page somewhere, and one to spare. False: out of memory. */
bool form_make_pages(struct form *f);
/* Where token t of sequence i stands among the queries of a head. */
int64_t form_query_row(const struct form *f, int i, int64_t t);
/* The same of keys, among those of all batches, or of all pages; and how many pages there are. */
int64_t form_key_row(const struct form *f, int i, int64_t t);
int64_t form_pool(const struct form_case *c);
/* Arguments with memory: all but the results; and these, poisoned. False: there is no memory. */
bool form_operands(struct call *call, const struct form *f);
bool form_results(struct call *call, const struct form *f);
/* Parts into results, which are the last arguments of `out`. */
lathe_status form_run_parts(struct call *call, struct call *out, const struct form *f, lathe_spec *spec,
                            lathe_error *err);
/* By a graph that was captured while lists said other lengths. Results are the last arguments. */
lathe_status form_run_graph(const struct call *call, const struct form *f, lathe_spec *spec,
                            lathe_error *err);

/* forms_gradients.c: of packed queries, keys packed and in pages; changes values that nothing comes of.
 * exact: those of the reference.
 */
void forms_check_gradients(const struct bench *bench, const struct test_case *whole, struct form *f,
                           struct values *x, struct values *exact, lathe_spec *spec, struct tally *tally);

#endif
