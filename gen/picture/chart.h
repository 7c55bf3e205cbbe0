/*
 * chart.h: what stands around the data of a picture: axes with numbers, colour bars, legends, curves.
 */
#ifndef LATHE_GEN_CHART_H
#define LATHE_GEN_CHART_H

#include "gen/picture/canvas.h"

struct plot { /* the area of the data, in pixels of the canvas */
    int x, y, width, height;
};
struct scale {
    double low, high;
    bool log; /* both are above 0 */
};

/* Cells in rows from above, colours [rows * columns], and a frame. */
void plot_cells(struct canvas *c, const struct plot *p, int rows, int columns, const uint8_t *colour);
/* Numbers from 0 to n below the plot, and from 0 above to n below at its left, with what they count. */
void plot_count_across(struct canvas *c, const struct plot *p, int64_t n, const char *label);
void plot_count_down(struct canvas *c, const struct plot *p, int64_t n, const char *label);
/* A ramp of colours with the numbers of its ends, FONT_ROWS + BAR_ROWS + 3 high. */
enum { BAR_ROWS = 10 };
void plot_bar(struct canvas *c, int x, int y, int width, enum ramp ramp, const char *low, const char *high);
/* A square of a colour and what it means; returns where the next one begins. */
int plot_swatch(struct canvas *c, int x, int y, uint8_t colour, const char *text);

/* Where a value of a scale stands, as a part from 0 to 1. */
double scale_part(const struct scale *s, double value);
/* 0 and `high`, rounded up to a number of few digits; or, where there are values below 0, both ends. */
struct scale scale_around(double low, double high);
/* The frame of curves, with grid lines and numbers; ticks: where they stand across, n of them; NULL: at round
   numbers. */
void plot_axes(struct canvas *c, const struct plot *p, const struct scale *across, const struct scale *up,
               const double *ticks, int n, const char *label_across, const char *label_up);
void plot_curve(struct canvas *c, const struct plot *p, const struct scale *across, const struct scale *up,
                const double *x, const double *y, int n, uint8_t colour, bool marks);
/* A dashed line across at a value of `up`, with a text above its right end. */
void plot_limit(struct canvas *c, const struct plot *p, const struct scale *up, double value, uint8_t colour,
                const char *text);
/* "0.25", "4096", "4k", "1M": at most six characters or so. */
void chart_number(double value, char out[24]);

#endif
