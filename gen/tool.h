/*
 * tool.h: what the files of the command-line tool `lathe` share: options, exit codes, messages, tensors.
 * Results go to standard output, everything else to standard error.
 */
#ifndef LATHE_TOOL_H
#define LATHE_TOOL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "gen.h"
#include "lathe.h"

/* Exit codes, documented by `lathe --help`. */
enum exit_code {
    CODE_OK = 0,
    CODE_FAILED = 1,      /* a check or a verification failed, or no template serves the problem */
    CODE_USAGE = 2,       /* wrong use, or bad input: a spec, a problem, a file */
    CODE_ENVIRONMENT = 3, /* no compiler, no device, no cache, no memory */
};

enum { MAX_ARCHS = 8, MAX_PAIRS = 32 };

struct name_value {
    char name[NAME_MAX_BYTES];
    const char *value;
};

struct name_values {
    int n;
    struct name_value item[MAX_PAIRS];
};

struct options {
    int n_operands;
    const char **operand; /* specs, or the action of `cache`; terminated by NULL */
    lathe_pass pass;
    int n_archs;
    struct device arch[MAX_ARCHS];
    const char *problem;       /* NULL: all defaults */
    const char *template_name; /* NULL: any */
    int n_problems;            /* of aot */
    const char **problems;
    bool both_passes; /* of aot: forward and backward */
    const char *name;
    const char *cc;  /* NULL: $CC, or cc */
    int jobs;        /* 0: one for each core */
    const char *out; /* NULL: not given */
    int device;
    unsigned seed;
    bool verify;
    int repeat;
    const char *cache_dir; /* NULL: the default */
    const char *cache;     /* of compile: where its result goes too; NULL: not given */
    struct name_values set;
    struct name_values input;
    struct name_values output;
};

/* ---- tool.c ------------------------------------------------------------------------------------ */

void complain(const char *fmt, ...) __attribute__((format(printf, 1, 2))); /* "lathe: ..." on stderr */
/* Print the record; returns the exit code that goes with its status. */
int complain_error(const lathe_error *err);
/* Load a path or a shipped spec's name. NULL after complaining, with *code set. */
struct ir *tool_spec(const char *name, int *code);
/* The path that the public API should load for it: the same argument. */
bool tool_spec_readable(const char *name);
/* "sm_90a" -> numbers. False: complained. */
bool device_parse(const char *text, struct device *out);
/* The same device, with the template that was asked for. */
struct device device_wish(const struct device *device, const struct options *o);
/* Write all bytes; "-" is standard output. False: complained. */
bool write_file(const char *path, const void *data, size_t size);
double seconds_now(void);                                                 /* monotonic */
const char *find_value(const struct name_values *list, const char *name); /* NULL where absent */

/* ---- progress.c: one line on a terminal for work over a second --------------------------------- */

struct progress {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool running;
    bool shown;
    double start;
    char text[160];
};
void progress_start(struct progress *p, const char *text);
void progress_text(struct progress *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void progress_stop(struct progress *p); /* clears the line */

/* ---- commands ---------------------------------------------------------------------------------- */

int cmd_aot(const struct options *o);
int cmd_check(const struct options *o);
int cmd_gen(const struct options *o);
int cmd_compile(const struct options *o);
int cmd_run(const struct options *o);
int cmd_tune(const struct options *o);
int cmd_cache(const struct options *o);
int cmd_explain(const struct options *o);
int cmd_list(const struct options *o);

/* cmd_warm.c: compile into the cache o->cache, for o->arch, or for `standard` where none is given. */
int tool_warm(const struct ir *ir, const struct options *o, const struct device *standard);
/* Plan and emit for one device; used by gen, compile and explain. */
int tool_source(const struct ir *ir, const struct options *o, const struct device *device,
                struct source *out);

#endif
