/*
 * emit_back_recipe.h: private to the emitters of attention's backward pass: its recipe while it is made.
 */
#ifndef LATHE_ATTENTION_EMIT_BACK_RECIPE_H
#define LATHE_ATTENTION_EMIT_BACK_RECIPE_H

#include "gen/attention/emit/emit.h"
#include "gen/base/text.h"

struct recipe {
    struct launcher a;
    const struct plan *plan;
    struct source *out;
    struct text_buf none; /* of structs that are declared once */
    struct layout forward;
    struct place dout; /* do' */
    struct place
        grad[TENSOR_O]; /* dq', dk', dv': where the main kernel leaves them. dq' has an order of its own */
    struct place result[TENSOR_O]; /* dq, dk, dv */
    struct place sums[MAX_STATE];  /* of rows */
    int rows;                      /* buffers; -1: none */
    int order;
    int map;    /* or ends of lists, */
    int tokens; /* which have these */
    int pieces;
    int page_first, page_next; /* of keys in pages: lists of the table's entries, by page */
    int sum[MAX_INPUTS];       /* exact sums of gradients of inputs */
    int rows_floats;
    bool declared_mod, declared_back, declared_map;
    bool declared_input[2]; /* back_zero_params, back_sum_params */
};

/* ---- emit_back_inputs.c */

/* Is the gradient summed in the workspace, without rounding? */
bool input_is_exact(const struct emitter *e, int input);
void product_times_dim(struct product *p, const struct sig_dim *dim, int tile);
/* Rows of struct grads, which `p` declares as one member. */
void back_add_grads(struct params *p, const struct recipe *r);
/* exact: the launches that write gradients from exact sums; else those that zero them. */
void back_add_input_kernels(struct recipe *r, bool exact);
/* heads/zero_and_sum.cuh names both structs, whichever of its kernels is launched. */
void back_declare_input_params(const struct recipe *r);

/* ---- emit_back_pages.c: keys that are copied out of pages (attention/pages.cuh) */

/* Where each of the packed sequences begins among such keys: before anything that names the list. */
void back_place_pages(struct recipe *r);
void back_add_pages_in(struct recipe *r);
void back_add_pages_out(struct recipe *r);

/* ---- emit_backward_place.c */

void back_place_everything(struct recipe *r);

/* ---- emit_backward_rows.c */

/* buffer: -1 for NULL. */
void back_optional_pointer(struct params *p, const char *type, const char *name, int buffer);
/* Does bwd_pre copy rows of do to where they are aligned? Of another length they have been copied before. */
bool back_pre_copies(const struct recipe *r);
bool back_has_unaligned_do(const struct recipe *r);
/* Sums over rows that no product with o gives. */
void back_add_row_sums(struct recipe *r);
/* runs: else its struct is declared, which back_row() names. */
void back_add_pre(struct recipe *r, bool runs);

#endif
