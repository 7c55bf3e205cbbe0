/*
 * canvas.h: a picture as colour numbers, one byte a pixel, and what is drawn on it: rectangles, lines, text;
 * and the PNG file that it becomes. Nothing here knows what a spec is.
 */
#ifndef LATHE_GEN_CANVAS_H
#define LATHE_GEN_CANVAS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Colours of one palette: some by name, then ramps of RAMP_COLOURS each. */
enum colour {
    WHITE,
    BLACK,
    GREY,
    PALE_GREY,
    BLUE,
    PALE_BLUE,
    ORANGE,
    PALE_ORANGE,
    RED,
    GREEN,
    PURPLE,
    BROWN,
    FIRST_RAMP
};
enum { RAMP_COLOURS = 80, PALETTE_COLOURS = FIRST_RAMP + 3 * RAMP_COLOURS };
enum ramp {
    RAMP_SHARE, /* white to blue: a share from 0 to 1 */
    RAMP_HEAT,  /* dark violet to yellow: a number that rises */
    RAMP_SIGNS  /* blue to red through white: a number about 0 */
};
/* The colour at `part` of a ramp, from 0 to 1; beyond them, that of the end. */
uint8_t ramp_colour(enum ramp ramp, double part);
/* Red, green and blue of every colour, [PALETTE_COLOURS * 3]. */
void palette_fill(uint8_t *rgb);

struct canvas {
    int width, height;
    uint8_t *pixel; /* NULL: memory ran out */
};
bool canvas_open(struct canvas *c, int width, int height); /* white; canvas_close in any case */
void canvas_close(struct canvas *c);
/* What lies outside of the canvas is left out, of everything. */
void canvas_fill(struct canvas *c, int x, int y, int width, int height, uint8_t colour);
void canvas_frame(struct canvas *c, int x, int y, int width, int height, uint8_t colour); /* around it */
void canvas_line(struct canvas *c, double x0, double y0, double x1, double y1, int thick, uint8_t colour);

enum font { FONT_PLAIN, FONT_BOLD };
enum { FONT_ROWS = 13 };
const uint8_t *font_glyph(enum font font, char c); /* [FONT_ROWS] */
int text_width(enum font font, const char *text);
void canvas_text(struct canvas *c, int x, int y, enum font font, uint8_t colour, const char *text);
/* Centred about x; ending at x; upwards along x, centred about y. */
void canvas_text_middle(struct canvas *c, int x, int y, enum font font, uint8_t colour, const char *text);
void canvas_text_end(struct canvas *c, int x, int y, enum font font, uint8_t colour, const char *text);
void canvas_text_up(struct canvas *c, int x, int y, enum font font, uint8_t colour, const char *text);

/* The picture as a PNG, to be freed. NULL, and why in a sentence: no libpng when lathe was built, no memory.
 */
void *canvas_png(const struct canvas *c, size_t *size, const char **why);

#endif
