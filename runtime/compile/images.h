/*
 * images.h: the code of the kernels of one text, compiled apart, in one run of bytes. Pure.
 */
#ifndef LATHE_RT_IMAGES_H
#define LATHE_RT_IMAGES_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/driver/driver.h"

/* One run of bytes for n images, malloc'd; NULL: no memory. Of one image: its own bytes. */
unsigned char *lathe__images_join(const struct image *image, int n, size_t *size);
bool lathe__images_is_set(const unsigned char *bytes, size_t size);
/* Views of the images in it; returns how many, 0: it is damaged. What is no set is one image. */
int lathe__images_split(const unsigned char *bytes, size_t size, struct image out[MAX_COMPILED_PARTS]);

#endif
