/*
 * png.c: a canvas as a PNG with a palette, by libpng where lathe was built with it. The same picture gives
 * the same bytes with the same libpng and zlib. In: a canvas. Out: bytes of the caller's.
 */
#include "gen/picture/canvas.h"

#include <stdlib.h>

#ifdef LATHE_HAS_PNG
#include <png.h>
#include <string.h>

void *canvas_png(const struct canvas *c, size_t *size, const char **why)
{
    uint8_t palette[PALETTE_COLOURS * 3];
    png_alloc_size_t bytes = 0;
    png_image image;
    memset(&image, 0, sizeof image);
    image.version = PNG_IMAGE_VERSION;
    image.width = (png_uint_32)c->width;
    image.height = (png_uint_32)c->height;
    image.format = PNG_FORMAT_RGB_COLORMAP;
    image.colormap_entries = PALETTE_COLOURS;
    palette_fill(palette);
    void *out = NULL;
    if (png_image_write_to_memory(&image, NULL, &bytes, 0, c->pixel, 0, palette) && (out = malloc(bytes)) &&
        png_image_write_to_memory(&image, out, &bytes, 0, c->pixel, 0, palette)) {
        *size = bytes;
        return out;
    }
    free(out);
    *why = "out of memory for the picture";
    return NULL;
}
#else
void *canvas_png(const struct canvas *c, size_t *size, const char **why)
{
    (void)c;
    *size = 0;
    *why = "this lathe was built without libpng: install libpng-dev, build it again, and CMake says "
           "\"pictures: yes\"";
    return NULL;
}
#endif
