/*
 * kinds.h: the kinds of operators as rows of one table. A stage that does something else for each kind asks
 * its row; kernels have their rows, by kind, in plan.c.
 */
#ifndef LATHE_GEN_KINDS_H
#define LATHE_GEN_KINDS_H

#include "gen.h"

struct tracer;
struct emitter;
struct host_call;

struct kind_row {
    const char *name;         /* the constructor that a spec calls; signature.kind */
    const char *const *slots; /* the fields it may have, up to a NULL */
    bool many;                /* the constructor's table may also be a list of such tables */
    void (*trace)(struct tracer *t, int slots); /* the table's place on the Lua stack */
    /* Rules of the model for a whole spec: false with diagnostics. */
    bool (*check)(struct ir *ir, struct diag *diag);
    void (*sign)(struct signature *s, const struct ir *ir, bool backward); /* appends arguments */
    bool (*emit)(struct emitter *e, const struct plan *plan, struct source *out);
    /* The host device: how many units (rows) there are, and the two passes. `rows` may name some of them. */
    int64_t (*host_units)(const struct host_call *call);
    lathe_status (*host_forward)(const struct host_call *call, const int64_t *rows, int64_t n_rows,
                                 lathe_error *err);
    /* NULL: host_grad.c derives it. */
    lathe_status (*host_backward)(const struct host_call *call, lathe_error *err);
};
extern const struct kind_row kinds[KIND_COUNT];

/* The columns, each where its stage is. */
void trace_attention(struct tracer *t, int slots);
void trace_rowwise(struct tracer *t, int slots);
void trace_elementwise(struct tracer *t, int slots);
bool check_attention(struct ir *ir, struct diag *diag);
bool check_rowwise(struct ir *ir, struct diag *diag);
bool check_elementwise(struct ir *ir, struct diag *diag);
void sign_attention(struct signature *s, const struct ir *ir, bool backward);
void sign_rowwise(struct signature *s, const struct ir *ir, bool backward);
void sign_elementwise(struct signature *s, const struct ir *ir, bool backward);

#endif
