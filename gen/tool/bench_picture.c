/*
 * bench_picture.c: rates over lengths as a PNG. In: what `lathe bench` has measured. Out: a file.
 */
#include "gen/picture/chart.h"
#include "gen/tool/bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { WIDTH = 760, HEIGHT = 480, LEFT = 84, RIGHT = 30, ABOVE = 66, BELOW = 56, MARGIN = 12 };

static double largest(const struct bench *b)
{
    double most = b->limit;
    for (int i = 0; i < b->n; i++)
        most = isfinite(b->point[i].rate) ? fmax(most, b->point[i].rate) : most;
    return most;
}

/* A length alone stands in the middle. */
static struct scale across_of(const struct bench *b)
{
    const double first = (double)b->point[0].length;
    const double last = (double)b->point[b->n - 1].length;
    return (struct scale){
        .low = first < last ? first : first / 2, .high = first < last ? last : last * 2, .log = true};
}

static void put_header(struct canvas *c, const struct bench *b)
{
    char text[256];
    snprintf(text, sizeof text, "%s, %s", b->ir->name, lathe__pass_text(b->o.pass));
    canvas_text(c, MARGIN, MARGIN, FONT_BOLD, BLACK, text);
    snprintf(text, sizeof text, "%.60s; %.100s", b->device,
             b->is_host ? "these rates say nothing about kernels" : b->point[b->n - 1].label);
    canvas_text(c, MARGIN, MARGIN + FONT_ROWS + 3, FONT_PLAIN, GREY, text);
    snprintf(text, sizeof text, "%.105s", b->problem);
    canvas_text(c, MARGIN, MARGIN + 2 * FONT_ROWS + 5, FONT_PLAIN, GREY, text);
}

static void put_rates(struct canvas *c, const struct bench *b, const struct plot *at)
{
    double x[BENCH_LENGTHS];
    double y[BENCH_LENGTHS];
    char text[64];
    const double most = largest(b);
    const struct scale across = across_of(b);
    const struct scale up = scale_around(0, most > 0 ? most * 1.08 : 1);
    for (int i = 0; i < b->n; i++) {
        x[i] = (double)b->point[i].length;
        y[i] = b->point[i].rate;
    }
    plot_axes(c, at, &across, &up, x, b->n, b->over, b->is_flop ? "TFLOP/s" : "TB/s");
    snprintf(text, sizeof text, "data sheet: %.4g %s", b->limit, b->is_flop ? "TFLOP/s" : "TB/s");
    if (b->limit > 0)
        plot_limit(c, at, &up, b->limit, RED, text);
    plot_curve(c, at, &across, &up, x, y, b->n, BLUE, true);
    for (int i = 0; i < b->n; i++) {
        const int px = at->x + (int)lround(scale_part(&across, x[i]) * (at->width - 1));
        snprintf(text, sizeof text, y[i] < 10 ? "%.3g" : "%.0f", y[i]);
        const int half = text_width(FONT_PLAIN, text) / 2 + 2;
        const int left = px - half < at->x ? at->x + half : px;
        if (isfinite(y[i]))
            canvas_text_middle(c, left + half > at->x + at->width ? at->x + at->width - half : left,
                               at->y + at->height - 1 -
                                   (int)lround(scale_part(&up, y[i]) * (at->height - 1)) - FONT_ROWS - 6,
                               FONT_PLAIN, BLACK, text);
    }
}

int bench_picture(const struct bench *b)
{
    struct canvas c;
    const struct plot at = {LEFT, ABOVE, WIDTH - LEFT - RIGHT, HEIGHT - ABOVE - BELOW};
    const char *why = "out of memory";
    size_t size = 0;
    void *png = NULL;
    int code = CODE_ENVIRONMENT;
    if (canvas_open(&c, WIDTH, HEIGHT)) {
        put_header(&c, b);
        put_rates(&c, b, &at);
        png = canvas_png(&c, &size, &why);
    }
    if (png)
        code = write_file(b->o.png, png, size) ? CODE_OK : CODE_USAGE;
    else
        tool_complain("bench: %s", why);
    free(png);
    canvas_close(&c);
    return code;
}
