/*
 * columns.h: the row of row-wise operators in the table of kinds (gen/ir/kind.h says what each column is).
 */
#ifndef LATHE_ROWWISE_COLUMNS_H
#define LATHE_ROWWISE_COLUMNS_H

#include <stdbool.h>
#include <stdint.h>

#include "gen/plan/template.h"
#include "lathe_types.h"

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

bool check_rowwise(struct ir *ir, struct diag *diag);
void sign_rowwise(struct signature *s, const struct ir *ir, bool backward);
lathe_status rowwise_lower(struct kernel_request *r);
void rowwise_release(struct kernel_request *r);
extern const struct template_row rowwise_templates[];
void rowwise_explain(struct facts *f, const struct plan *plan);
bool emit_rowwise(const struct kernel_request *r, const struct plan *plan, struct text_buf *config,
                  struct text_buf *variant, struct source *out);
int64_t host_rowwise_rows(const struct host_call *call);
lathe_status host_rowwise_forward(const struct host_call *call, const int64_t *rows, int64_t n_rows,
                                  lathe_error *err);
lathe_status host_rowwise_backward(const struct host_request *r, lathe_error *err);
int64_t rowwise_count_rows(const struct problem *problem);
double rowwise_row_work(const struct problem *problem);
extern const struct kind_proofs rowwise_proofs;

#endif
