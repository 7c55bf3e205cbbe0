/*
 * index_ranges.h: which values the integers of a spec take, for all rows, keys and elements at once, from
 * sizes and the declared ranges of inputs alone: intervals.c finds them for the sizes of one call,
 * index_ranges.c says up to which sizes no integer leaves 32 bits and no read its tensor.
 */
#ifndef LATHE_INDEX_RANGES_H
#define LATHE_INDEX_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ir;
struct ir_map;
struct proof;
struct prove_given;

/* ---- intervals.c --------------------------------------------------------------------------------- */

struct interval {
    double low, high; /* infinite where nothing is known */
};
struct interval_call {
    const struct ir *ir;
    const int64_t *dim;       /* size of every symbol */
    int64_t head_dim;         /* at.i is below it */
    const struct ir_map *map; /* elementwise: whose indices they are */
    int condition;            /* a bool node that holds: the mask; -1: none */
};
/* Of every node up to `last`, `used` ones alone. An i32 that may leave 32 bits has the interval of the true
   result, and counts as unknown in what is made of it. False: out of memory. */
bool intervals_run(const struct interval_call *call, const bool *used, int last, struct interval *out);

/* ---- index_ranges.c ------------------------------------------------------------------------------ */

/* The first integer that may leave 32 bits, division by 0 or read outside a tensor, at these sizes: a
   sentence, and the line. False: there is none. */
bool index_trouble(const struct ir *ir, const int64_t *dim, char *text, size_t size, int *line);
/* Sizes that inputs name for themselves, raised so that reads whose index is known are inside; what is
   `fixed` stays. */
void index_fit_sizes(const struct ir *ir, int64_t *dim, const int64_t *fixed);
/* Up to which sizes a spec holds: a verdict that never fails, but warns. */
void prove_ranges(const struct ir *ir, const struct prove_given *given, struct proof *out);

/* ---- index_guards.c ------------------------------------------------------------------------------ */

/* Does a condition ask whether an index is inside of what it reads? Where it is not, the read is an error. */
bool index_guard(const struct ir *ir, int node);

/* ---- expression.c -------------------------------------------------------------------------------- */

/* A node as the spec may have it: "at.q * at.q", "x.b(at.h, at.q - at.kv)"; cut where it is long. map: of
   elementwise, whose indices are meant. */
void expression_text(const struct ir *ir, const struct ir_map *map, int node, char *out, size_t size);

#endif
