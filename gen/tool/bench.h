/*
 * bench.h: the parts of `lathe bench`.
 */
#ifndef LATHE_TOOL_BENCH_H
#define LATHE_TOOL_BENCH_H

#include "gen/tool/run.h"

enum { BENCH_LENGTHS = 32 };

struct bench_point {
    int64_t length;
    double seconds, fastest, slowest; /* of a launch: the median, and the ends */
    double rate;                      /* TFLOP/s or TB/s; NaN: it was not measured */
    char label[128];                  /* of the kernel */
};
struct bench {
    struct options o;
    struct ir *ir;
    const char *over;
    char device[128];
    bool is_host;
    bool is_flop;
    char problem[256]; /* of the last point */
    double limit;      /* of the device, in the unit of the rates; 0: not known */
    int n;
    struct bench_point point[BENCH_LENGTHS];
};

/* bench_limits.c: what a device's data sheet promises, by its name: dense arithmetic of 16-bit tensor cores
   in TFLOP/s, or memory in TB/s. 0: it is not in the table. */
double bench_limit(const char *device, bool is_flop);

/* bench_picture.c: into b->o.png. Exit code, having complained. */
int bench_picture(const struct bench *b);

#endif
