/*
 * kind.h: the kinds of operators as rows of one table. A stage that does something else for each kind asks
 * its row, which also names the rows of its templates (plan/template.h).
 */
#ifndef LATHE_GEN_KINDS_H
#define LATHE_GEN_KINDS_H

#include "gen/ir/spec.h"

struct diag;
struct emitter;
struct facts;
struct feature;
struct kernel_request;
struct kind_proofs;
struct params;
struct plan;
struct template_row;
struct text_buf;
struct tracer;
struct host_call;
struct host_request;

struct kind_row {
    const char *name;         /* the constructor that a spec calls; signature.kind */
    const char *const *slots; /* the fields it may have, up to a NULL */
    /* Arguments of its calls, in any pass, that no spec declares, up to a NULL: no declared name is one. */
    const char *const *arguments;
    bool many; /* the constructor's table may also be a list of such tables */
    /* What stages that all kinds share ask. */
    const char *operand; /* the tensor that values are made of, and the one that */
    const char *result;  /* they become: "q", "o"; NULL: the spec names its own */
    bool points;         /* values vary with dims of a map, not with rows, keys and a head dim */
    bool tiles;          /* elements come out of products of tiles, so their arithmetic counts; else memory */
    bool recurrent; /* a state goes along the tokens of a head: q and k have the same heads, and v and o */
    const char *no_scans; /* why nothing is summed along it but what it reduces; NULL: scans are part of it */
    void (*trace)(struct tracer *t, int slots); /* the table's place on the Lua stack */
    /* Rules of the model for a whole spec: false with diagnostics. */
    bool (*check)(struct ir *ir, struct diag *diag);
    void (*sign)(struct signature *s, const struct ir *ir, bool backward); /* appends arguments */
    void (*sign_combine)(struct signature *s, const struct ir *ir);        /* of that pass; NULL: none */
    /* The spec lowered for a request, into its part of the union there, and what is freed of it. What no
       kernel computes is a refusal in the request; MEMORY is the one failure. */
    lathe_status (*lower)(struct kernel_request *r);
    void (*release)(struct kernel_request *r);
    const struct template_row
        *templates;                 /* in the order in which they are preferred, up to one without a name */
    const struct feature *features; /* which bits of their columns name (plan/serves.h); NULL: none */
    /* Of a plan, for `lathe explain`: its numbers and reason; how many parts its work has, of which each
       keeps a multiprocessor busy, and what they are, where that is known (NULL: it never is). */
    void (*explain)(struct facts *f, const struct plan *plan);
    int64_t (*parts)(const struct plan *plan, const struct problem *p, const char **what);
    /* The line of the first formula that counts a call's tokens, so that a call with a part of them gives
       others; -1: none does, 0: no memory. NULL: tokens know nothing of each other. */
    int (*counting_line)(const struct ir *ir);
    const char *variant_includes; /* lines in front of struct variant */
    /* What the text of formulas asks (gen/emit). */
    const char *row_text; /* at.row; NULL: there is none */
    int row_leaves;       /* leaves from LEAF_STATE up to this one are known when a row has been walked */
    double
        positions_end; /* launches refuse sizes and positions from here on; 0: they take what 32 bits hold */
    void (*own_inputs)(struct params *p, struct emitter *e,
                       bool text); /* behind those of struct inputs; NULL */
    /* The kind's part of the config, and struct variant, with the launches beside them. False: one of the
       texts has failed, or memory ran out. */
    bool (*emit)(const struct kernel_request *r, const struct plan *plan, struct text_buf *config,
                 struct text_buf *variant, struct source *out);
    /* The host device: how many units (rows) there are, and the two passes. `rows` may name some of them. */
    int64_t (*host_units)(const struct host_call *call);
    lathe_status (*host_forward)(const struct host_call *call, const int64_t *rows, int64_t n_rows,
                                 lathe_error *err);
    /* How long the host device takes: rows, each of which may be computed by itself (NULL: all is one), and
       the multiplications of one (NULL: a matter of how many elements there are). */
    int64_t (*host_rows)(const struct problem *problem);
    double (*host_row_work)(const struct problem *problem);
    lathe_status (*host_combine)(const struct host_call *call, const int64_t *rows, int64_t n_rows,
                                 lathe_error *err); /* NULL: there is no such pass */
    lathe_status (*host_backward)(const struct host_request *request, lathe_error *err);
    const struct kind_proofs *proofs; /* gen/prove/kind_proofs.h */
};
extern const struct kind_row kinds[KIND_COUNT];

/* Of gen/lang; all else is in columns.h of the kind. */
void trace_attention(struct tracer *t, int slots);
void trace_rowwise(struct tracer *t, int slots);
void trace_elementwise(struct tracer *t, int slots);
void trace_linear(struct tracer *t, int slots);

#endif
