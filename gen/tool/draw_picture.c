/*
 * draw_picture.c: the panels of `lathe draw` as one picture, in lines, and as numbers. In: a drawing with its
 * panels. Out: a PNG file; facts.
 */
#include "gen/picture/chart.h"
#include "gen/tool/draw.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEFT = 74, RIGHT = 22, ABOVE = 22, BELOW = 108, MARGIN = 12, HEADER = 46, ACROSS = 4 };

/* ---- one panel ------------------------------------------------------------------------------------- */

/* Cells are squares of whole pixels where there are few of them. */
static struct plot plot_of(const struct drawing *d, int x, int y)
{
    const int side = d->o.pixels;
    return (struct plot){x + LEFT, y + ABOVE, d->grid.cols * (side / d->grid.cols),
                         d->grid.rows * (side / d->grid.rows)};
}

static uint8_t share_colour(const struct panel *p, int64_t i)
{
    return p->value[i] <= 0 ? WHITE : ramp_colour(RAMP_SHARE, p->value[i]);
}

/* About 0 where there are values of both signs. */
static bool has_signs(const struct panel *p)
{
    return p->low < 0 && p->high > 0;
}

static uint8_t heat_colour(const struct panel *p, int64_t i)
{
    const double value = p->value[i];
    const double far = fmax(-p->low, p->high);
    const double span = p->high - p->low;
    if (!isfinite(value))
        return WHITE;
    if (has_signs(p))
        return ramp_colour(RAMP_SIGNS, 0.5 + 0.5 * value / far);
    return ramp_colour(RAMP_HEAT, span > 0 ? (value - p->low) / span : 1);
}

/* Of weights: what is a million times smaller than the largest is as good as none. */
static double least_shown(const struct panel *p)
{
    return fmax(p->low, p->high * 1e-6);
}

static uint8_t log_colour(const struct panel *p, int64_t i)
{
    const double least = least_shown(p);
    const double span = log(p->high / least);
    if (!(p->value[i] > 0))
        return WHITE;
    return ramp_colour(RAMP_HEAT, span > 1e-9 ? log(p->value[i] / least) / span : 1);
}

static void bar_with_numbers(struct canvas *c, const struct plot *at, int y, enum ramp ramp, double low,
                             double high)
{
    char left[24];
    char right[24];
    chart_number(low, left);
    chart_number(high, right);
    plot_bar(c, at->x, y, at->width, ramp, left, right);
}

static void put_log_bar(struct canvas *c, const struct panel *p, const struct plot *at, int y)
{
    char left[24];
    char right[24];
    char or_less[40];
    chart_number(least_shown(p), left);
    chart_number(p->high, right);
    snprintf(or_less, sizeof or_less, "%s%s", left, least_shown(p) > p->low ? " or less" : "");
    plot_bar(c, at->x, y, at->width, RAMP_HEAT, or_less, right);
}

static void put_legend(struct canvas *c, const struct panel *p, const struct plot *at, int y)
{
    const double far = fmax(-p->low, p->high);
    if (p->form == PANEL_SHARE)
        plot_bar(c, at->x, y, at->width, RAMP_SHARE, "0 % live", "100 %");
    else if (p->form == PANEL_HEAT && has_signs(p))
        bar_with_numbers(c, at, y, RAMP_SIGNS, -far, far);
    else if (p->form == PANEL_LOG)
        put_log_bar(c, p, at, y);
    else
        bar_with_numbers(c, at, y, RAMP_HEAT, p->low, p->high);
}

static void put_note(struct canvas *c, const char *note, const struct plot *at, int y)
{
    canvas_text(c, at->x, y, FONT_PLAIN, GREY, note);
}

typedef uint8_t colour_of(const struct panel *p, int64_t i);

static bool put_heat(struct canvas *c, const struct panel *p, const struct plot *at, colour_of *colour)
{
    const int64_t n = (int64_t)p->grid.rows * p->grid.cols;
    uint8_t *cell = malloc((size_t)n);
    for (int64_t i = 0; cell && i < n; i++)
        cell[i] = colour(p, i);
    if (cell)
        plot_cells(c, at, p->grid.rows, p->grid.cols, cell);
    free(cell);
    return cell != NULL;
}

/* ---- tiles ----------------------------------------------------------------------------------------- */

/* The class of the tiles of a pixel: of several that differ, "some". */
static enum tile_class class_at(const struct panel *p, const struct plot *at, int x, int y)
{
    const struct grid *g = &p->grid;
    const int64_t r0 = (int64_t)y * g->n_rows / at->height / g->step_rows;
    const int64_t r1 = ((int64_t)(y + 1) * g->n_rows - 1) / at->height / g->step_rows;
    const int64_t c0 = (int64_t)x * g->n_cols / at->width / g->step_cols;
    const int64_t c1 = ((int64_t)(x + 1) * g->n_cols - 1) / at->width / g->step_cols;
    const double first = p->value[r0 * g->cols + c0];
    const bool whole = g->n_rows > at->height && g->n_cols > at->width;
    for (int64_t r = r0; r <= r1 && r < g->rows && whole; r++)
        for (int64_t k = c0; k <= c1 && k < g->cols; k++)
            if (p->value[r * g->cols + k] != first && g->step_rows < g->n_rows / at->height)
                return TILE_SOME;
    return (enum tile_class)(int)first;
}

static uint8_t tile_colour(const struct drawing *d, const struct panel *p, const struct plot *at, int x,
                           int y)
{
    const enum tile_class class = class_at(p, at, x, y);
    const int64_t cell =
        (int64_t)y * d->grid.rows / at->height * d->grid.cols + (int64_t)x * d->grid.cols / at->width;
    if (class == TILE_SOME)
        return d->live[cell] >= 0.5 ? ORANGE : PALE_ORANGE;
    return class == TILE_ALL ? BLUE : WHITE;
}

/* Where tiles are large enough to be told apart. */
static void put_tile_lines(struct canvas *c, const struct panel *p, const struct plot *at)
{
    const struct grid *g = &p->grid;
    for (int i = 1; i < g->rows && at->height / g->rows >= 5; i++)
        canvas_fill(c, at->x, at->y + (int)(grid_row(g, i) * at->height / g->n_rows), at->width, 1,
                    PALE_GREY);
    for (int i = 1; i < g->cols && at->width / g->cols >= 5; i++)
        canvas_fill(c, at->x + (int)(grid_col(g, i) * at->width / g->n_cols), at->y, 1, at->height,
                    PALE_GREY);
}

static void put_tile_legend(const struct drawing *d, struct canvas *c, const struct plot *at, int y)
{
    char text[64];
    snprintf(text, sizeof text, "all %.3g %%", 100 * d->class_share[TILE_ALL]);
    const int x = plot_swatch(c, at->x, y, BLUE, text);
    snprintf(text, sizeof text, "none %.3g %%", 100 * d->class_share[TILE_NONE]);
    plot_swatch(c, x, y, WHITE, text);
    snprintf(text, sizeof text, "some %.3g %%: live, dead", 100 * d->class_share[TILE_SOME]);
    canvas_fill(c, at->x, y + FONT_ROWS + 4, FONT_ROWS - 2, FONT_ROWS - 2, PALE_ORANGE);
    plot_swatch(c, at->x, y + FONT_ROWS + 3, ORANGE, text);
    canvas_fill(c, at->x + 6, y + FONT_ROWS + 6, 4, FONT_ROWS - 5, PALE_ORANGE);
}

static void put_tiles(const struct drawing *d, struct canvas *c, const struct panel *p, const struct plot *at)
{
    for (int y = 0; y < at->height; y++)
        for (int x = 0; x < at->width; x++)
            canvas_fill(c, at->x + x, at->y + y, 1, 1, tile_colour(d, p, at, x, y));
    put_tile_lines(c, p, at);
    canvas_frame(c, at->x, at->y, at->width, at->height, BLACK);
}

/* ---- curves ---------------------------------------------------------------------------------------- */

static const uint8_t HEAD_COLOURS[DRAW_HEADS] = {BLUE, ORANGE, GREEN, PURPLE};

static void put_curves(const struct drawing *d, struct canvas *c, const struct panel *p,
                       const struct plot *at)
{
    const struct scale across = {.low = p->x_low, .high = p->x_high};
    const struct scale up = scale_around(fmax(p->low, p->x_low), fmin(fmax(p->high, 1e-9), p->x_high));
    const int n = p->grid.cols;
    double *x = calloc((size_t)n, sizeof *x);
    double *same = calloc((size_t)n, sizeof *same);
    plot_axes(c, at, &across, &up, NULL, 0, "score s", "score_mod(s)");
    for (int i = 0; i < n && x && same; i++) {
        x[i] = p->x_low + (p->x_high - p->x_low) * i / (n - 1);
        same[i] = x[i] >= up.low && x[i] <= up.high ? x[i] : (double)NAN;
    }
    if (x && same)
        plot_curve(c, at, &across, &up, x, same, n, GREY, false);
    for (int h = 0; h < p->grid.rows && x; h++) {
        double *y = p->value + (int64_t)h * n;
        for (int i = 0; i < n; i++)
            y[i] = y[i] >= up.low && y[i] <= up.high ? y[i] : (double)NAN;
        plot_curve(c, at, &across, &up, x, y, n, HEAD_COLOURS[h], false);
    }
    int next = at->x;
    for (int h = 0; h < p->grid.rows && p->grid.rows > 1; h++) {
        char text[24];
        snprintf(text, sizeof text, "head %d", d->head[h]);
        next = plot_swatch(c, next, at->y + at->height + 44, HEAD_COLOURS[h], text);
    }
    free(x);
    free(same);
}

/* ---- the picture ----------------------------------------------------------------------------------- */

static bool put_panel(const struct drawing *d, struct canvas *c, const struct panel *p, int x, int y)
{
    const struct plot at = plot_of(d, x, y);
    const int legend = at.y + at.height + 42;
    bool good = true;
    canvas_text(c, at.x, y + 4, FONT_BOLD, BLACK, p->title);
    if (p->form == PANEL_CURVE) {
        put_curves(d, c, p, &at);
        put_note(c, p->note, &at, legend + FONT_ROWS + 6);
        return true;
    }
    if (p->form == PANEL_TILES)
        put_tiles(d, c, p, &at);
    else
        good = put_heat(c, p, &at,
                        p->form == PANEL_SHARE  ? share_colour
                        : p->form == PANEL_HEAT ? heat_colour
                                                : log_colour);
    plot_count_across(c, &at, d->len_kv, !d->linear ? "key" : d->len_kv > d->len_q ? "update j" : "token j");
    plot_count_down(c, &at, d->len_q, d->linear ? "token i" : "query");
    if (p->form == PANEL_TILES)
        put_tile_legend(d, c, &at, legend);
    else
        put_legend(c, p, &at, legend);
    put_note(c, p->note, &at, legend + 2 * FONT_ROWS + 6);
    if (p->form == PANEL_TILES)
        put_note(c, d->tile_note, &at, legend + 3 * FONT_ROWS + 7);
    return good;
}

/* Does panel i begin a line: is the one before full, or do few of the same sort begin with it? */
static bool begins_line(const struct drawing *d, int i, int column)
{
    return column == ACROSS || (d->n_panels > ACROSS && i > 0 && d->panel[i].line != d->panel[i - 1].line);
}

static void place_panels(const struct drawing *d, int *column, int *line)
{
    int x = 0;
    int y = 0;
    for (int i = 0; i < d->n_panels; i++, x++) {
        if (begins_line(d, i, x)) {
            x = 0;
            y++;
        }
        column[i] = x;
        line[i] = y;
    }
}

static void put_header(const struct drawing *d, struct canvas *c, const char *title)
{
    char text[128];
    const bool random = d->run.ir->n_inputs > 0;
    canvas_text(c, MARGIN, MARGIN, FONT_BOLD, BLACK, title);
    snprintf(text, sizeof text, "%s, batch 0%s", d->linear ? "linear attention" : "attention",
             random ? "; inputs as given, or random" : "");
    canvas_text(c, MARGIN, MARGIN + FONT_ROWS + 3, FONT_PLAIN, GREY, text);
}

static void title_of(const struct drawing *d, char *out, size_t size)
{
    const int64_t *dim = d->run.problem.dim;
    if (d->linear)
        snprintf(out, size, "%s   h=%" PRId64 " t=%" PRId64 " d=%" PRId64, d->run.ir->name, dim[SYM_H],
                 dim[SYM_T], dim[SYM_D]);
    else
        snprintf(out, size, "%s   h=%" PRId64 " h_kv=%" PRId64 " q=%" PRId64 " kv=%" PRId64 " d=%" PRId64,
                 d->run.ir->name, dim[SYM_H], dim[SYM_H_KV], dim[SYM_Q], dim[SYM_KV], dim[SYM_D]);
}

static int larger(int a, int b)
{
    return a > b ? a : b;
}

/* Where what is written of a panel ends. */
static int text_end(const struct panel *p)
{
    return LEFT + larger(text_width(FONT_BOLD, p->title), text_width(FONT_PLAIN, p->note)) + MARGIN;
}

static bool paint(const struct drawing *d, struct canvas *c)
{
    int column[DRAW_PANELS] = {0};
    int line[DRAW_PANELS] = {0};
    int columns = 0;
    char title[160];
    const int width = LEFT + d->o.pixels + RIGHT;
    const int height = ABOVE + d->o.pixels + BELOW;
    place_panels(d, column, line);
    for (int i = 0; i < d->n_panels; i++)
        columns = larger(columns, column[i] + 1);
    title_of(d, title, sizeof title);
    int across = larger(columns * width, text_width(FONT_BOLD, title) + 2 * MARGIN);
    for (int i = 0; i < d->n_panels; i++)
        across = larger(across, column[i] * width + text_end(&d->panel[i]));
    if (!canvas_open(c, across, HEADER + (line[d->n_panels - 1] + 1) * height))
        return false;
    put_header(d, c, title);
    bool good = true;
    for (int i = 0; i < d->n_panels; i++)
        good = put_panel(d, c, &d->panel[i], column[i] * width, HEADER + line[i] * height) && good;
    return good;
}

int draw_picture(struct drawing *d)
{
    struct canvas c = {0, 0, NULL};
    const char *why = "out of memory";
    size_t size = 0;
    void *png = paint(d, &c) ? canvas_png(&c, &size, &why) : NULL;
    int code = CODE_ENVIRONMENT;
    if (png)
        code = write_file(d->o.out, png, size) ? CODE_OK : CODE_USAGE;
    else
        tool_complain("draw: %s", why);
    free(png);
    canvas_close(&c);
    return code;
}

/* ---- numbers --------------------------------------------------------------------------------------- */

static void report_panel(const struct drawing *d, const struct panel *p, struct facts *f)
{
    static const char *const FORMS[] = {"share", "tiles", "values", "weights", "curve"};
    facts_open(f, NULL, '{');
    facts_string(f, "title", p->title);
    facts_string(f, "form", FORMS[p->form]);
    facts_string(f, "note", p->note);
    facts_integer(f, "rows", p->grid.rows);
    facts_integer(f, "columns", p->grid.cols);
    if (p->head >= 0)
        facts_integer(f, "head", p->head);
    if (p->form == PANEL_TILES) {
        facts_number(f, "none", d->class_share[TILE_NONE]);
        facts_number(f, "some", d->class_share[TILE_SOME]);
        facts_number(f, "all", d->class_share[TILE_ALL]);
        facts_line(f, "  %-32s none %.4g %%, some %.4g %%, all %.4g %% (%s, %s)\n", p->title,
                   100 * d->class_share[TILE_NONE], 100 * d->class_share[TILE_SOME],
                   100 * d->class_share[TILE_ALL], d->template_name, d->tile_note);
    } else if (p->form == PANEL_SHARE) {
        facts_line(f, "  %-32s %s\n", p->title, p->note);
    } else {
        facts_number(f, "least", p->least);
        facts_number(f, "most", p->most);
        facts_line(f, "  %-32s from %.6g to %.6g (%s)\n", p->title, p->least, p->most, p->note);
    }
    facts_close(f);
}

void draw_report(struct drawing *d, struct facts *f)
{
    char title[160];
    title_of(d, title, sizeof title);
    facts_string(f, "spec", d->run.ir->name);
    facts_string(f, "problem", title);
    facts_line(f, "%s\n", title);
    if (!d->linear)
        facts_number(f, "live", d->share_live);
    facts_open(f, "panels", '[');
    for (int i = 0; i < d->n_panels; i++)
        report_panel(d, &d->panel[i], f);
    facts_close(f);
}
