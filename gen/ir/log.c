/*
 * log.c: the pool after each pass of lowering, as text. In: a pool whose spec has a log. Out: a heading,
 * and what has changed.
 */
#include "gen/ir/log.h"
#include "gen/ir/spec.h"

#include <string.h>

static void print_fn(struct text_buf *out, const struct ir *ir, const char *name, const struct ir_fn *fn)
{
    ir_print_roots(ir, name, fn->root, fn->n_roots, out);
}

/* How rows go from tile to tile: attention/rescale.c. */
static void print_rows(struct text_buf *out, const struct ir *ir)
{
    static const char *const path[] = {[ROWS_DEFERRED] = "normalised at the end",
                                       [ROWS_STATELESS] = "without a state",
                                       [ROWS_BOUNDED] = "with a constant in the place of the maximum",
                                       [ROWS_LAZY] = "with a maximum that is raised when it grew by much",
                                       [ROWS_BELOW] = "with a number below the maximum in its place"};
    if (ir->lowered.rescale.path != ROWS_EXACT)
        text_add(out, "rows %s\n", path[ir->lowered.rescale.path]);
    print_fn(out, ir, "online_fwd while the maximum stays", &ir->lowered.rescale.kept);
    if (ir->lowered.rescale.masked_once)
        text_add(out, "dead pairs are set once\n");
}

static void print_strides(struct text_buf *out, const struct ir *ir)
{
    for (int k = 0; k < ir->lowered.n_key_strides; k++) {
        const int of[] = {ir->lowered.key_stride[k].node, ir->lowered.key_stride[k].slope};
        ir_print_roots(ir, "grows from key to key by", of, 2, out);
    }
}

/* What lowering has found out about a mask, on a tile. */
static void print_mask(struct text_buf *out, const struct ir *ir)
{
    print_fn(out, ir, "finals of an empty row", &ir->lowered.empty);
    print_fn(out, ir, "mask on a tile: certain, possible", &ir->bounds);
    print_fn(out, ir, "mask on a tile whose reads are known", &ir->lowered.read_bounds);
    print_fn(out, ir, "first and last key", &ir->lowered.key_interval);
    print_fn(out, ir, "what the mask asks of the keys between", &ir->lowered.keys_left);
    if (ir->lowered.blocks.rows > 0)
        text_add(out, "the same on blocks of %d rows and %d keys\n", ir->lowered.blocks.rows,
                 ir->lowered.blocks.keys);
    print_fn(out, ir, "mask on a tile of blocks", &ir->lowered.blocks.bounds);
    if (ir->lowered.selected.n > 0)
        text_add(out, "%d listed blocks of %d keys\n", ir->lowered.selected.n, ir->lowered.selected.keys);
}

static void print_pool(const struct ir *w, struct text_buf *out)
{
    ir_print(w, out);
    print_mask(out, w);
    print_rows(out, w);
    print_strides(out, w);
}

/* The first line of what follows a function, or a line that belongs to none. */
static const char *end_of_section(const char *at)
{
    do {
        at += strcspn(at, "\n");
        at += *at == '\n';
    } while (*at == ' ');
    return at;
}

/* The functions and lines that were not there before. */
static void add_changes(struct text_buf *out, const char *now, const char *before)
{
    bool any = false;
    for (const char *at = now, *end; *at; at = end) {
        struct text_buf section = {0};
        end = end_of_section(at);
        text_add_bytes(&section, at, (size_t)(end - at));
        if (!section.failed && before && strstr(before, section.data) == NULL) {
            text_add_bytes(out, section.data, section.size);
            any = true;
        }
        text_fail_with(out, &section);
        text_free(&section);
    }
    if (!any)
        text_add(out, "nothing new\n");
}

void ir_log_close(struct ir_log *log)
{
    text_free(&log->last);
}

void ir_log_begin(const struct ir *w, const char *what)
{
    if (!w->log)
        return;
    text_add(w->log->out, "\n# %s\n", what);
    text_free(&w->log->last);
    print_pool(w, &w->log->last);
}

void ir_passed_with(const struct ir *w, const char *pass,
                    void (*print)(const void *of, const struct ir *w, struct text_buf *out), const void *of)
{
    struct text_buf now = {0};
    if (!w->log || w->failed)
        return;
    text_add(w->log->out, "\n## %s\n", pass);
    print_pool(w, &now);
    if (print)
        print(of, w, &now);
    if (!now.failed)
        add_changes(w->log->out, now.data, w->log->last.data);
    text_fail_with(w->log->out, &now);
    text_free(&w->log->last);
    w->log->last = now;
}

void ir_passed(const struct ir *w, const char *pass)
{
    ir_passed_with(w, pass, NULL, NULL);
}
