/*
 * chart.c: axes, legends and curves of a picture. In: the area of the data and scales. Out: pixels of the
 * canvas.
 */
#include "gen/picture/chart.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum { TICK = 4, GAP = 3 };

void chart_number(double value, char out[24])
{
    snprintf(out, 24, "%.4g", value);
}

/* Of tokens: "16k" where it is a multiple of 1024. */
static void length_text(double value, char out[24])
{
    const bool kilo = value >= 1024 && fmod(value, 1024) == 0;
    snprintf(out, 24, kilo ? "%.0fk" : "%.0f", kilo ? value / 1024 : value);
}

/* 1, 2 or 5 times a power of ten, so that a span has at most `most` steps. */
static double round_step(double span, int most)
{
    const double power = pow(10, floor(log10(span / most)));
    const double times = span / most / power;
    return power * (times <= 1 ? 1 : times <= 2 ? 2 : times <= 5 ? 5 : 10);
}

/* ---- cells ---------------------------------------------------------------------------------------- */

void plot_cells(struct canvas *c, const struct plot *p, int rows, int columns, const uint8_t *colour)
{
    for (int y = 0; y < p->height; y++)
        for (int x = 0; x < p->width; x++)
            canvas_fill(c, p->x + x, p->y + y, 1, 1,
                        colour[(int64_t)y * rows / p->height * columns + (int64_t)x * columns / p->width]);
    canvas_frame(c, p->x, p->y, p->width, p->height, BLACK);
}

/* Quarters where they are whole, as those of powers of two are. */
static int64_t count_step(int64_t n)
{
    if (n >= 4 && n % 4 == 0)
        return n / 4;
    return n > 5 ? (int64_t)round_step((double)n, 5) : 1;
}

void plot_count_across(struct canvas *c, const struct plot *p, int64_t n, const char *label)
{
    const int below = p->y + p->height;
    for (int64_t at = 0; at <= n; at += count_step(n)) {
        const int x = p->x + (int)lround((double)at / (double)n * p->width);
        char text[24];
        snprintf(text, sizeof text, "%" PRId64, at);
        canvas_fill(c, x, below, 1, TICK, BLACK);
        canvas_text_middle(c, x, below + TICK + GAP, FONT_PLAIN, BLACK, text);
    }
    canvas_text_middle(c, p->x + p->width / 2, below + TICK + GAP + FONT_ROWS + 1, FONT_PLAIN, BLACK, label);
}

void plot_count_down(struct canvas *c, const struct plot *p, int64_t n, const char *label)
{
    int widest = 0;
    for (int64_t at = 0; at <= n; at += count_step(n)) {
        const int y = p->y + (int)lround((double)at / (double)n * p->height);
        char text[24];
        snprintf(text, sizeof text, "%" PRId64, at);
        canvas_fill(c, p->x - TICK, y, TICK, 1, BLACK);
        canvas_text_end(c, p->x - TICK - GAP, y - FONT_ROWS / 2, FONT_PLAIN, BLACK, text);
        widest = text_width(FONT_PLAIN, text) > widest ? text_width(FONT_PLAIN, text) : widest;
    }
    canvas_text_up(c, p->x - TICK - 2 * GAP - widest - FONT_ROWS, p->y + p->height / 2, FONT_PLAIN, BLACK,
                   label);
}

/* ---- legends -------------------------------------------------------------------------------------- */

void plot_bar(struct canvas *c, int x, int y, int width, enum ramp ramp, const char *low, const char *high)
{
    for (int i = 0; i < width; i++)
        canvas_fill(c, x + i, y, 1, BAR_ROWS, ramp_colour(ramp, (double)i / (width - 1)));
    canvas_frame(c, x, y, width, BAR_ROWS, GREY);
    canvas_text(c, x, y + BAR_ROWS + GAP, FONT_PLAIN, BLACK, low);
    canvas_text_end(c, x + width, y + BAR_ROWS + GAP, FONT_PLAIN, BLACK, high);
}

int plot_swatch(struct canvas *c, int x, int y, uint8_t colour, const char *text)
{
    canvas_fill(c, x, y + 1, FONT_ROWS - 2, FONT_ROWS - 2, colour);
    canvas_frame(c, x + 1, y + 2, FONT_ROWS - 4, FONT_ROWS - 4, GREY);
    canvas_text(c, x + FONT_ROWS + GAP, y, FONT_PLAIN, BLACK, text);
    return x + FONT_ROWS + GAP + text_width(FONT_PLAIN, text) + 12;
}

/* ---- curves --------------------------------------------------------------------------------------- */

double scale_part(const struct scale *s, double value)
{
    return s->log ? log(value / s->low) / log(s->high / s->low) : (value - s->low) / (s->high - s->low);
}

struct scale scale_around(double low, double high)
{
    const double least = fmin(low, 0);
    const double span = high - least > 0 ? high - least : 1;
    const double step = round_step(span, 8);
    return (struct scale){.low = floor(least / step) * step, .high = ceil((least + span) / step) * step};
}

static int across_at(const struct plot *p, const struct scale *s, double value)
{
    return p->x + (int)lround(scale_part(s, value) * (p->width - 1));
}

static int up_at(const struct plot *p, const struct scale *s, double value)
{
    return p->y + p->height - 1 - (int)lround(scale_part(s, value) * (p->height - 1));
}

static void tick_across(struct canvas *c, const struct plot *p, int x, const char *text)
{
    canvas_fill(c, x, p->y, 1, p->height, PALE_GREY);
    canvas_fill(c, x, p->y + p->height, 1, TICK, BLACK);
    canvas_text_middle(c, x, p->y + p->height + TICK + GAP, FONT_PLAIN, BLACK, text);
}

/* Numbers of the steps within a scale. */
static int64_t first_tick(const struct scale *s, double step)
{
    return (int64_t)ceil(s->low / step - 1e-6);
}

static int64_t last_tick(const struct scale *s, double step)
{
    return (int64_t)floor(s->high / step + 1e-6);
}

static void ticks_across(struct canvas *c, const struct plot *p, const struct scale *s, const double *ticks,
                         int n)
{
    char text[24];
    const double step = round_step(s->high - s->low, 5);
    for (int i = 0; i < n && ticks; i++) {
        length_text(ticks[i], text);
        tick_across(c, p, across_at(p, s, ticks[i]), text);
    }
    for (int64_t i = first_tick(s, step); i <= last_tick(s, step) && !ticks; i++) {
        chart_number((double)i * step, text);
        tick_across(c, p, across_at(p, s, (double)i * step), text);
    }
}

void plot_axes(struct canvas *c, const struct plot *p, const struct scale *across, const struct scale *up,
               const double *ticks, int n, const char *label_across, const char *label_up)
{
    const double step = round_step(up->high - up->low, 6);
    int widest = 0;
    ticks_across(c, p, across, ticks, n);
    for (int64_t i = first_tick(up, step); i <= last_tick(up, step); i++) {
        char text[24];
        const int y = up_at(p, up, (double)i * step);
        chart_number((double)i * step, text);
        canvas_fill(c, p->x, y, p->width, 1, PALE_GREY);
        canvas_fill(c, p->x - TICK, y, TICK, 1, BLACK);
        canvas_text_end(c, p->x - TICK - GAP, y - FONT_ROWS / 2, FONT_PLAIN, BLACK, text);
        widest = text_width(FONT_PLAIN, text) > widest ? text_width(FONT_PLAIN, text) : widest;
    }
    canvas_frame(c, p->x, p->y, p->width, p->height, BLACK);
    canvas_text_middle(c, p->x + p->width / 2, p->y + p->height + TICK + GAP + FONT_ROWS + 1, FONT_PLAIN,
                       BLACK, label_across);
    canvas_text_up(c, p->x - TICK - 2 * GAP - widest - FONT_ROWS, p->y + p->height / 2, FONT_PLAIN, BLACK,
                   label_up);
}

void plot_curve(struct canvas *c, const struct plot *p, const struct scale *across, const struct scale *up,
                const double *x, const double *y, int n, uint8_t colour, bool marks)
{
    for (int i = 0; i < n; i++) {
        const int x1 = across_at(p, across, x[i]);
        const int y1 = up_at(p, up, y[i]);
        if (i > 0 && isfinite(y[i - 1]) && isfinite(y[i]))
            canvas_line(c, across_at(p, across, x[i - 1]), up_at(p, up, y[i - 1]), x1, y1, 2, colour);
        if (marks && isfinite(y[i]))
            canvas_fill(c, x1 - 3, y1 - 3, 7, 7, colour);
    }
}

void plot_limit(struct canvas *c, const struct plot *p, const struct scale *up, double value, uint8_t colour,
                const char *text)
{
    const int y = up_at(p, up, value);
    for (int x = 0; x < p->width; x += 10)
        canvas_fill(c, p->x + x, y, p->width - x < 6 ? p->width - x : 6, 1, colour);
    canvas_text_end(c, p->x + p->width - GAP, y - FONT_ROWS - 1, FONT_PLAIN, colour, text);
}
