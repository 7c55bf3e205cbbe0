/*
 * canvas.c: drawing on a picture of colour numbers. In: a canvas that is open. Out: its pixels; what lies
 * outside is left out. The canvas owns its pixels: canvas_close.
 */
#include "gen/picture/canvas.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool canvas_open(struct canvas *c, int width, int height)
{
    *c = (struct canvas){width, height, malloc((size_t)width * (size_t)height)};
    if (c->pixel)
        memset(c->pixel, WHITE, (size_t)width * (size_t)height);
    return c->pixel != NULL;
}

void canvas_close(struct canvas *c)
{
    free(c->pixel);
    c->pixel = NULL;
}

static void put(struct canvas *c, int x, int y, uint8_t colour)
{
    if (x >= 0 && x < c->width && y >= 0 && y < c->height)
        c->pixel[(size_t)y * (size_t)c->width + (size_t)x] = colour;
}

void canvas_fill(struct canvas *c, int x, int y, int width, int height, uint8_t colour)
{
    for (int j = y; j < y + height; j++)
        for (int i = x; i < x + width; i++)
            put(c, i, j, colour);
}

void canvas_frame(struct canvas *c, int x, int y, int width, int height, uint8_t colour)
{
    canvas_fill(c, x - 1, y - 1, width + 2, 1, colour);
    canvas_fill(c, x - 1, y + height, width + 2, 1, colour);
    canvas_fill(c, x - 1, y, 1, height, colour);
    canvas_fill(c, x + width, y, 1, height, colour);
}

void canvas_line(struct canvas *c, double x0, double y0, double x1, double y1, int thick, uint8_t colour)
{
    const double length = fmax(fabs(x1 - x0), fabs(y1 - y0));
    const int steps = (int)ceil(length) + 1;
    for (int i = 0; i <= steps; i++) {
        const double part = (double)i / steps;
        const int x = (int)lround(x0 + part * (x1 - x0)) - (thick - 1) / 2;
        const int y = (int)lround(y0 + part * (y1 - y0)) - (thick - 1) / 2;
        canvas_fill(c, x, y, thick, thick, colour);
    }
}

/* ---- text ---------------------------------------------------------------------------------------- */

static int glyph_width(enum font font)
{
    return font == FONT_BOLD ? 8 : 7;
}

int text_width(enum font font, const char *text)
{
    return (int)strlen(text) * glyph_width(font);
}

/* A pixel of a text that begins at (x, y): `along` it, and `down` from its top. */
static void put_text(struct canvas *c, int x, int y, enum font font, uint8_t colour, const char *text,
                     bool up)
{
    for (int n = 0; text[n]; n++) {
        const uint8_t *glyph = font_glyph(font, text[n]);
        for (int down = 0; down < FONT_ROWS; down++)
            for (int k = 0; k < 8; k++) {
                const int along = n * glyph_width(font) + k;
                if (glyph[down] >> (7 - k) & 1)
                    put(c, up ? x + down : x + along, up ? y - along : y + down, colour);
            }
    }
}

void canvas_text(struct canvas *c, int x, int y, enum font font, uint8_t colour, const char *text)
{
    put_text(c, x, y, font, colour, text, false);
}

void canvas_text_middle(struct canvas *c, int x, int y, enum font font, uint8_t colour, const char *text)
{
    put_text(c, x - text_width(font, text) / 2, y, font, colour, text, false);
}

void canvas_text_end(struct canvas *c, int x, int y, enum font font, uint8_t colour, const char *text)
{
    put_text(c, x - text_width(font, text), y, font, colour, text, false);
}

void canvas_text_up(struct canvas *c, int x, int y, enum font font, uint8_t colour, const char *text)
{
    put_text(c, x, y + text_width(font, text) / 2, font, colour, text, true);
}
