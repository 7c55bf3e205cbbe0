/*
 * columns.h: the row of linear attention in the table of kinds (gen/ir/kind.h says what each column is). A
 * unit of the host device is a head of a sequence, number sequence * h + head.
 */
#ifndef LATHE_LINEAR_COLUMNS_H
#define LATHE_LINEAR_COLUMNS_H

#include <stdbool.h>
#include <stdint.h>

#include "gen/plan/template.h"
#include "lathe_types.h"

struct device;
struct diag;
struct emitter;
struct facts;
struct host_call;
struct host_request;
struct ir;
struct kernel_request;
struct kind_proofs;
struct params;
struct plan;
struct problem;
struct signature;
struct source;
struct text_buf;

bool check_linear(struct ir *ir, struct diag *diag);
void sign_linear(struct signature *s, const struct ir *ir, bool backward);
lathe_status linear_lower(struct kernel_request *r);
void linear_release(struct kernel_request *r);
extern const struct template_row linear_templates[];
extern const struct feature linear_features[];
int linear_counting_line(const struct ir *ir);
void linear_explain(struct facts *f, const struct plan *plan);
void emit_linear_inputs(struct params *p, struct emitter *e, bool text);
bool emit_linear(const struct kernel_request *r, const struct plan *plan, struct text_buf *config,
                 struct text_buf *variant, struct source *out);
int64_t host_linear_units(const struct host_call *call);
lathe_status host_linear_forward(const struct host_call *call, const int64_t *units, int64_t n_units,
                                 lathe_error *err);
lathe_status host_linear_backward(const struct host_request *r, lathe_error *err);
double linear_work(const struct problem *problem);
extern const struct kind_proofs linear_proofs;

#endif
