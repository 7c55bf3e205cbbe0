/*
 * tool.h: what the files of the command-line tool `lathe` share: options, exit codes, messages, tensors.
 * Results go to standard output, everything else to standard error.
 */
#ifndef LATHE_TOOL_H
#define LATHE_TOOL_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "gen/gen.h"
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

struct tool_tables; /* commands.h */

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
    unsigned passes; /* of aot: a bit for each lathe_pass */
    const char *name;
    const char *cc;    /* NULL: $CC, or cc */
    int jobs;          /* 0: one for each core */
    const char *out;   /* NULL: not given */
    const char *split; /* of gen, in its place: a folder; NULL: not given */
    int device;
    unsigned seed;
    bool verify;
    bool strict;                                        /* of check */
    bool all;                                           /* of gen */
    enum tool_ir { IR_NONE, IR_TRACED, IR_LOWERED } ir; /* of gen: in the place of CUDA text */
    int seconds;                                        /* of check; 0: not given */
    int repeat;
    int ranks;             /* of explain; 0: not given */
    const char *cache_dir; /* NULL: the default */
    const char *cache;     /* of compile: where its result goes too; NULL: not given */
    bool texts;            /* of cache export: the readable sources too */
    bool time;             /* of compile */
    struct name_values set;
    struct name_values input;
    struct name_values output;
    struct name_values param; /* of specs */
    bool *param_known;        /* [MAX_PAIRS]: some spec has it; tool_spec fills it */
    bool json;
    bool names;   /* of list */
    double score; /* of draw: where the change of scores is shown; NaN: at 0, or 1 where all are 0 there */
    int pixels;   /* of draw: the side of a panel */
    const char *lengths; /* of bench: with commas */
    const char *over;    /* of bench: a size; NULL: the kind's own */
    const char *png;     /* of bench; NULL: no picture */
    const struct tool_tables *tables;
};

/* ---- tool.c ------------------------------------------------------------------------------------ */

void tool_complain(const char *fmt, ...) __attribute__((format(printf, 1, 2))); /* "lathe: ..." on stderr */
/* Print the record; returns the exit code that goes with its status. */
int complain_error(const lathe_error *err);
/* Load a path or a shipped spec's name, with the parameters of the command line. NULL after complaining, with
 *code set. */
struct ir *tool_spec(const char *name, const struct options *o, int *code);
/* Those parameters as numbers. False: complained. */
bool tool_params(const struct options *o, struct spec_params *out);
/* Where there are several specs, each may lack some. CODE_USAGE, having complained: all of them lack one. */
int tool_params_known(const struct options *o);
/* The value of --set for a scalar of that dtype. What f32 does not hold is refused there, as constants are;
   NaN and infinity stay. False: complained. */
bool tool_scalar(const char *name, const char *text, lathe_dtype dtype, double *out);
/* Warn where a proof of a fraction of a second fails; the others are `lathe check`'s. */
void tool_warn_proofs(const struct ir *ir);
/* Say where the integers of a spec may leave 32 bits or read outside a tensor, at the sizes of a problem. */
void tool_warn_ranges(const struct ir *ir, const struct problem *problem);
/* The path that the public API should load for it: the same argument. */
bool tool_spec_readable(const char *name);
/* "sm_90a" -> numbers. False: complained. */
bool device_parse(const char *text, struct device *out);
/* The same device, with the template that was asked for. */
struct device device_asked(const struct device *device, const struct options *o);
/* kernel_make_source for a problem of the command line; source_free. */
int tool_source(const struct ir *ir, const struct options *o, const struct device *device,
                struct source *out);
/* A text that was made, on standard output; it is freed. False: complained. */
bool tool_print(struct text_buf *text);
/* Write all bytes; "-" is standard output. False: complained. */
bool write_file(const char *path, const void *data, size_t size);
/* Could it, ahead of work that would be in vain? Complains, too. */
bool file_is_writable(const char *path);
/* Does the line of a problem name this size? */
bool tool_names_size(const char *text, const char *name);
double tool_seconds_now(void);                                                 /* monotonic */
const char *tool_find_value(const struct name_values *list, const char *name); /* NULL where absent */

/* cmd_gen.c: where code for the device (sm_80, if no architecture was `given`) is made by a portable
   template, and a GPU has one of its own, say so. True: said. */
bool tool_say_portable(const struct ir *ir, lathe_pass pass, const struct problem *problem,
                       const struct device *device, bool given);
/* compile_time.c: seconds of each part, for every architecture that is named, on standard output. */
int tool_compile_time(const struct ir *ir, const struct options *o, const struct device *standard);
/* cmd_gen.c: false where LATHE_OFFLINE forbids compiling: complained. */
bool tool_may_compile(const char *command);

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

/* ---- interrupt.c: cleaning up before a signal ends the tool -------------------------------------- */

struct interrupt {
    void (*clean)(void *user);
    void *user;
    pthread_t thread;
    sigset_t before;
    int signals;
    int stop[2];
    bool running;
};
void interrupt_start(struct interrupt *i, void (*clean)(void *user), void *user);
void interrupt_stop(struct interrupt *i); /* does not return where a signal has come */

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
int cmd_report(const struct options *o);
int cmd_translate(const struct options *o);
int cmd_show(const struct options *o);
int cmd_draw(const struct options *o);
int cmd_bench(const struct options *o);

/* cmd_warm.c: compile into the cache o->cache, for o->arch, or for `standard` where none is given. */
int tool_warm(const struct ir *ir, const struct options *o, const struct device *standard);

#endif
