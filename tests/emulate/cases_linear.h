/*
 * cases_linear.h: what the rooms with cases of linear attention share: sizes of calls, and specs by name.
 */
#ifndef LATHE_TESTS_EMULATE_CASES_LINEAR_H
#define LATHE_TESTS_EMULATE_CASES_LINEAR_H

#include "cases.h"

struct linear_shape {
    int b, h, h_k, t, seqs, slots;
    enum layout layout;
    const char *without; /* names between spaces */
};
/* The case of such a call. */
void add_linear(struct case_list *list, struct test_case c, const struct linear_shape *s);

extern const struct linear_shape LINEAR_SHAPES[5]; /* of any kernel */
extern const struct linear_shape LINEAR_CHUNKS[6]; /* lengths beside those of chunks */
extern const struct linear_shape LINEAR_STEPS[2];  /* and of steps of 16 tokens */
extern const struct linear_shape LINEAR_PIECES[3]; /* few long sequences */
extern const struct linear_shape LINEAR_OVER[4];   /* last states in the place of first ones */

/* Of a spec of tests/emulate/specs that several of these rooms have. NULL: it is a shipped one. */
const char *linear_text(const char *name);
/* The same of n specs. */
const char *linear_text_among(const struct inline_spec *spec, int n, const char *name);

void linear_additive_cases(struct case_list *list); /* cases_additive.c */
void linear_delta_cases(struct case_list *list);    /* cases_delta.c */
void linear_keyed_cases(struct case_list *list);    /* cases_keyed.c */

#endif
