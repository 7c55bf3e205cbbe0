/*
 * system.h: shared by system.c (threads, graphs), times.c (the time bars) and race.c (processes).
 */
#ifndef LATHE_TESTS_GPU_SYSTEM_H
#define LATHE_TESTS_GPU_SYSTEM_H

#include "cases.h"

struct opened { /* one small problem on a side, from spec to memory */
    struct side side;
    struct test_case test;
    lathe_spec *spec;
    struct case_data data;
    struct ready ready;
};
/* Memory with values; then spec and kernel; or both in one. False: err says why. opened_close either way. */
bool opened_place(struct opened *o, const struct device *device, const char *spec, lathe_dtype dtype,
                  int64_t head_dim, lathe_error *err);
bool opened_kernel(struct opened *o, const struct side *side, lathe_error *err);
bool opened_open(struct opened *o, const struct side *side, const char *spec, lathe_dtype dtype,
                 int64_t head_dim, lathe_error *err);
void opened_close(struct opened *o);

/* A context of its own; cache "": no disk cache. side_close either way. */
bool side_open(struct side *side, const struct device *device, const char *cache, lathe_log_fn *log,
               void *user, lathe_error *err);
bool side_open_with(struct side *side, const struct device *device, const char *cache, lathe_log_fn *log,
                    void *user, int deterministic, lathe_error *err);
void side_close(struct side *side);

void verdict(struct totals *totals, bool passed, const char *name, const char *note);

bool folder_make(char *out, size_t size); /* a new folder under $TMPDIR or /tmp */
void folder_remove(const char *path);     /* with all that is in it */
/* Start this binary as a child with standard output into a pipe; returns its pid or -1. */
int child_start(const struct options *options, const char *what, const char *cache, int *output);
int child_wait(int pid); /* exit code, or -1 */

void test_race(const struct options *options, struct totals *totals);
void times_run(const struct device *device, const struct options *options, struct totals *totals);
int child_first_call(const char *cache);
int child_cold(void); /* compile times, a line each */
int child_compile(const char *cache);

#endif
