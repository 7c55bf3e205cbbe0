/*
 * emit.h: what the emitters of row-wise kernels share: values per launch, column and row of one spec,
 * and the passes that reduce. Seen by the files of this folder alone.
 */
#ifndef LATHE_EMIT_ROWWISE_H
#define LATHE_EMIT_ROWWISE_H

#include "gen/emit/emit.h"

struct plan;
struct row_pass;
struct text_buf;

#define ROW_ARGS "const inputs &x, const row_sizes &z, const head &h"

struct row_emitter {
    struct emitter *e;
    struct phases phases;
    struct field_set head;
    struct field_set col;
    struct field_set vals;
    struct field_set cells;                       /* emit_shared_reads.c; members of col, too */
    const struct row_pass *pass;                  /* emit.c */
    bool packs;                                   /* fields of col are held packed */
    const char *manner;                           /* columns_manner of the columns, with a comma; or NULL */
    void (*name_elements)(struct row_emitter *r); /* NULL: x is called e */
};

/* ---- emit_scope.c */

/* A new scope with the fields of a column and of a row, and the elements. */
void row_name_all(struct row_emitter *r, bool col, bool vals);
/* Assigns the fields of vals that are known after a pass; -1: before. */
void row_assign_pass(struct row_emitter *r, int pass);
/* static constexpr TYPE NAME[] = {value, ...}; of at least one */
void row_emit_list(struct text_buf *out, const char *type, const char *name, const int *value, int n);

/* ---- emit_common.c */

/* From the roots of w->row. False: more than there is room for. */
bool row_collect(struct row_emitter *r);
void row_emit_head(struct row_emitter *r);
void row_emit_columns(struct row_emitter *r);
/* operand<R>(): what reduction R takes of an element, whose parameter is `element`. */
void row_emit_operands(struct row_emitter *r, const char *element, const char *otherwise);
void row_emit_reductions(struct row_emitter *r); /* PASSES, REDUCTIONS, REDUCE_PASS, REDUCE_OP */
void row_emit_update(struct row_emitter *r);

static inline int row_root(const struct row_emitter *r, int number)
{
    return r->e->w->row.root[number];
}

/* ---- emit_norms.c: of a row pass; nothing where there are none */

void row_emit_norms(struct row_emitter *r);

/* ---- emit_scans.c: of a row pass */

/* Elements that a block has at once where a row does not fit registers: CHUNK of rowwise/registers.cuh; a
   warp, PLACES of rowwise/inner_scan.cuh. */
int row_chunk(const struct row_pass *pass, const struct plan *plan);
void row_emit_scans(struct row_emitter *r, const struct plan *plan);

/* ---- emit_gradients.c: of a row pass */

int row_sums(const struct row_pass *pass); /* sites of form ROW */
/* Gradients are numbered in the order of the sites. Returns how many there are. */
int row_number_gradients(const struct row_pass *pass, int *grad);
/* Does an earlier site add to the same gradient by atomics? */
bool row_scatter_is_shared(const struct row_pass *pass, int site);
/* Gradients that are added up by atomics have a buffer each. A site's; or, of n_sites, how many there are. */
int row_scatter_buffer(const struct row_pass *pass, int site);
struct row_sharing { /* of the parts that blocks leave, in the kernel that adds them up */
    int shares;      /* threads that have the same columns */
    int round;       /* loads of one that are under way at once */
    int columns;     /* of a block */
};
struct row_sharing row_share_parts(const struct row_pass *pass, const struct plan *plan);
/* COLUMNS, SUMS, SITES, GRADS, what each site is, and how parts are shared. */
void row_emit_sites(struct row_emitter *r, const struct plan *plan);
void row_emit_scatters(struct row_emitter *r);
void row_emit_column_of(struct row_emitter *r);

/* ---- emit_launch.c: of a row pass */

void row_add_launches(struct row_emitter *r, const struct plan *plan, struct source *out);

/* ---- emit_shared_reads.c: parts of the variant, empty for most specs */

bool row_collect_cells(struct row_emitter *r);
void row_declare_cells(const struct row_emitter *r, char *out, size_t size); /* members of col */
void row_emit_cells(struct row_emitter *r);
void row_emit_guards(struct row_emitter *r);

#endif
