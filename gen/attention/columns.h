/*
 * columns.h: the row of attention in the table of kinds (gen/ir/kind.h says what each column is).
 */
#ifndef LATHE_ATTENTION_COLUMNS_H
#define LATHE_ATTENTION_COLUMNS_H

#include <stdbool.h>
#include <stdint.h>

#include "gen/plan/template.h"
#include "lathe_types.h"

struct device;
struct diag;
struct facts;
struct host_call;
struct host_request;
struct ir;
struct kernel_request;
struct kind_proofs;
struct plan;
struct problem;
struct signature;
struct source;
struct text_buf;

bool check_attention(struct ir *ir, struct diag *diag);
void sign_attention(struct signature *s, const struct ir *ir, bool backward);
void sign_attention_combine(struct signature *s, const struct ir *ir);
lathe_status attention_lower(struct kernel_request *r);
void attention_release(struct kernel_request *r);
extern const struct template_row attention_templates[];
extern const struct feature attention_features[];
int places_counting_line(const struct ir *ir);
void attention_explain(struct facts *f, const struct plan *plan);
int64_t attention_parts(const struct plan *plan, const struct problem *p, const char **what);
bool emit_attention(const struct kernel_request *r, const struct plan *plan, struct text_buf *config,
                    struct text_buf *variant, struct source *out);
int64_t host_attention_rows(const struct host_call *call);
lathe_status host_attention_forward(const struct host_call *call, const int64_t *rows, int64_t n_rows,
                                    lathe_error *err);
lathe_status host_attention_combine(const struct host_call *call, const int64_t *rows, int64_t n_rows,
                                    lathe_error *err);
lathe_status host_attention_backward(const struct host_request *r, lathe_error *err);
int64_t attention_count_rows(const struct problem *problem);
double attention_row_work(const struct problem *problem);
extern const struct kind_proofs attention_proofs;

#endif
