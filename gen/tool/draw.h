/*
 * draw.h: the parts of `lathe draw`: numbers by panel, and the picture of them.
 */
#ifndef LATHE_TOOL_DRAW_H
#define LATHE_TOOL_DRAW_H

#include "gen/tool/run.h"

enum { DRAW_HEADS = 4, DRAW_PANELS = 14 };

/* Pairs in cells: n_rows queries in `rows` of them, n_cols keys in `cols`. */
struct grid {
    int64_t n_rows, n_cols;
    int rows, cols;
    int64_t step_rows, step_cols; /* of tiles; 0: as even as it goes */
};
/* Where cell i begins; that of `rows` is the end. */
static inline int64_t grid_row(const struct grid *g, int i)
{
    const int64_t at = g->step_rows ? i * g->step_rows : i * g->n_rows / g->rows;
    return at < g->n_rows ? at : g->n_rows;
}
static inline int64_t grid_col(const struct grid *g, int i)
{
    const int64_t at = g->step_cols ? i * g->step_cols : i * g->n_cols / g->cols;
    return at < g->n_cols ? at : g->n_cols;
}

enum panel_form {
    PANEL_SHARE, /* value: the share of a cell's pairs that is live */
    PANEL_TILES, /* value: enum tile_class of tiles */
    PANEL_HEAT,  /* value: a number, NaN where there is none */
    PANEL_LOG,   /* the same, of which the logarithm is shown */
    PANEL_CURVE  /* value: y by `cols` values of x from x_low to x_high, a row for each head */
};
struct panel {
    enum panel_form form;
    int line; /* of the picture */
    int head; /* -1: all are alike */
    char title[64];
    char note[96];
    struct grid grid;
    double *value;      /* [grid.rows * grid.cols] */
    double low, high;   /* of the colours: panels of a line alike */
    double least, most; /* of its own values, if it `shows` any */
    bool shows;
    double x_low, x_high;
};

struct drawing {
    struct run run; /* its inputs alone */
    struct options o;
    lathe_pass pass; /* whose tiles are drawn */
    bool linear;
    int64_t len_q, len_kv;
    double score; /* at which scores change and weights are */
    int n_heads;  /* those that are drawn where they differ */
    int head[DRAW_HEADS];
    struct grid grid; /* cells of the picture */
    double *live;     /* by cell, of head[0]: the share that is live */
    int n_panels;
    struct panel panel[DRAW_PANELS];
    double share_live; /* of head[0] */
    double class_share[3];
    char template_name[48];
    char tile_note[64];
};

/* ---- draw_pairs.c: by the formulas of a spec ------------------------------------------------------ */

/* Does the formula differ from head to head? */
bool draw_by_head(const struct ir *ir, const struct ir_fn *fn);
/* The share of each cell's pairs that is live. Exact, but where so many are left open by the mask's bounds
   that only one row in *every is looked at. Exit code, having complained. */
int draw_live(const struct drawing *d, int head, const struct grid *g, double *share, int64_t *every);
/* score_mod(s) - s of the pair in the middle of each cell that has a live one. */
int draw_scores(const struct drawing *d, int head, double *value);
/* score_mod(s) of n scores, of a spec that asks for no place. */
int draw_score_curve(const struct drawing *d, int head, const double *s, int n, double *value);

/* ---- draw_weights.c: by the host device ----------------------------------------------------------- */

/* The mean weight of the keys of each cell in the row in its middle, for d->head[0..n_heads), of queries and
   keys that say nothing: 0, or, of linear attention, a first number sqrt(d) and 1, and the others 0. */
int draw_weights(const struct drawing *d, int n_heads, double *const value[DRAW_HEADS]);

/* ---- draw_picture.c ------------------------------------------------------------------------------- */

/* All panels as a PNG into d->o.out. Exit code, having complained. */
int draw_picture(struct drawing *d);
/* The same as numbers. */
void draw_report(struct drawing *d, struct facts *f);

#endif
