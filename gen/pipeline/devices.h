/*
 * devices.h: numbers of devices that are not at hand.
 */
#ifndef LATHE_GEN_DEVICES_H
#define LATHE_GEN_DEVICES_H

#include <stdbool.h>

struct device;
struct text_buf;

/* "sm_90a" -> numbers. False: there is no such architecture; then `known`, which may be NULL, gets the names
   of all, with a blank in front of each. */
bool device_find(const char *text, struct device *out, struct text_buf *known);

#endif
