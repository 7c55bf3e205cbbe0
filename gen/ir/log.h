/*
 * log.h: what lowering does, for people: what each pass has changed, of `lathe gen --ir lowered`.
 */
#ifndef LATHE_IR_LOG_H
#define LATHE_IR_LOG_H

#include "gen/base/text.h"

struct ir;

/* Who is shown a pool; its clones have it, too (ir->log). */
struct ir_log {
    struct text_buf *out;
    struct text_buf last; /* the pool as the pass before left it: functions that stay are not printed again */
};
void ir_log_close(struct ir_log *log);
/* A pool of its own begins: "forward kernel". */
void ir_log_begin(const struct ir *w, const char *what);
/* A pass is through. */
void ir_passed(const struct ir *w, const char *pass);
/* The same, with formulas that are in no function of the spec: print writes them. */
void ir_passed_with(const struct ir *w, const char *pass,
                    void (*print)(const void *of, const struct ir *w, struct text_buf *out), const void *of);

#endif
