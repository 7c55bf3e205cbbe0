/*
 * emit_rowwise.h: what the emitters of row-wise kernels share: values per launch, column and row of one spec,
 * and the passes that reduce. Seen by emit_rowwise.c, emit_row_pass.c and
 * emit_row_cells.c alone.
 */
#ifndef LATHE_EMIT_ROWWISE_H
#define LATHE_EMIT_ROWWISE_H

#include "emit.h"

#define ROW_ARGS "const inputs &x, const row_sizes &z, const head &h"

struct row_emitter {
    struct emitter *e;
    struct phases phases;
    struct field_set head;
    struct field_set col;
    struct field_set vals;
    struct field_set cells;                       /* emit_row_cells.c; members of col, too */
    const struct row_pass *pass;                  /* emit_row_pass.c */
    const char *manner;                           /* columns_manner of the columns, with a comma; or NULL */
    void (*name_elements)(struct row_emitter *r); /* NULL: x is called e */
};

/* From the roots of w->row. False: more than there is room for. */
bool row_collect(struct row_emitter *r);
/* A new scope with the fields of a column and of a row, and the elements. */
void row_name_all(struct row_emitter *r, bool col, bool vals);
void row_emit_head(struct row_emitter *r);
void row_emit_columns(struct row_emitter *r);
void row_assign_pass(struct row_emitter *r,
                     int pass); /* fields of vals that are known after it; -1: before */
/* operand<R>(): what reduction R takes of an element, whose parameter is `element`. */
void row_emit_operands(struct row_emitter *r, const char *element, const char *otherwise);
void row_emit_reductions(struct row_emitter *r); /* PASSES, REDUCTIONS, REDUCE_PASS, REDUCE_OP */
void row_emit_update(struct row_emitter *r);

/* ---- emit_row_cells.c: parts of the variant, empty for most specs */

bool row_collect_cells(struct row_emitter *r);
void row_name_cells(struct row_emitter *r);
void row_declare_cells(const struct row_emitter *r, char *out, size_t size); /* members of col */
void row_emit_cells(struct row_emitter *r);
void row_emit_guards(struct row_emitter *r);

#endif
