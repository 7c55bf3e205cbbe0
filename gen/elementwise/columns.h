/*
 * columns.h: the row of element-wise operators in the table of kinds (gen/ir/kind.h says what each column
 * is). A unit of the host device is a line of points along the last dim of a map.
 */
#ifndef LATHE_ELEMENTWISE_COLUMNS_H
#define LATHE_ELEMENTWISE_COLUMNS_H

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
struct signature;
struct source;
struct text_buf;

bool check_elementwise(struct ir *ir, struct diag *diag);
void sign_elementwise(struct signature *s, const struct ir *ir, bool backward);
lathe_status elementwise_lower(struct kernel_request *r);
void elementwise_release(struct kernel_request *r);
extern const struct template_row elementwise_templates[];
void elementwise_explain(struct facts *f, const struct plan *plan);
bool emit_elementwise(const struct kernel_request *r, const struct plan *plan, struct text_buf *config,
                      struct text_buf *variant, struct source *out);
int64_t host_elementwise_units(const struct host_call *call);
lathe_status host_elementwise_forward(const struct host_call *call, const int64_t *units, int64_t n_units,
                                      lathe_error *err);
lathe_status host_elementwise_backward(const struct host_request *r, lathe_error *err);
extern const struct kind_proofs elementwise_proofs;

#endif
