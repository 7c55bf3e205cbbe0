/*
 * ranges.h: what a value may be, whatever the data.
 */
#ifndef LATHE_RANGES_H
#define LATHE_RANGES_H

struct ir;

struct range {
    double low, high;
};
/* Of all nodes up to root: what a value may be, whatever the data; infinite where nothing is known. */
void ranges_of_all(const struct ir *w, int root, struct range *out);

#endif
