/*
 * rules.c: rules of the model that hold for a whole spec of any kind; types, spans and phases were filled in
 * as the nodes were made. Each kind has its own in check.c. In: traced IR. Out: the same IR, or diagnostics
 * with the line of the root at fault.
 */
#include "gen/ir/kind.h"
#include "gen/base/diag.h"
#include "gen/base/text.h"
#include "gen/ir/rules.h"

#include <stdio.h>
#include <string.h>

void rule_broken(struct rule *r, const struct ir_fn *fn, int i, const char *text, const char *who)
{
    const struct ir_node *n = &r->ir->node[fn->root[i]];
    const struct ir_at at = n->line ? (struct ir_at){n->file, n->line} : fn->at;
    diag_add(r->diag, r->ir->file[at.line ? at.file : 1], at.line, "%s: %s", who, text);
    r->ok = false;
}

void rule_number(struct rule *r, struct ir_fn *fn, int i, uint8_t allowed, const char *who,
                 const char *span_text)
{
    const struct ir_node *n = &r->ir->node[fn->root[i]];
    if (n->type == TYPE_BOOL) {
        rule_broken(r, fn, i, "must return a number, returns a bool; use where(c, 1.0, 0.0)", who);
        return;
    }
    if (n->span & ~allowed)
        rule_broken(r, fn, i, span_text, who);
    if (n->type == TYPE_I32)
        fn->root[i] = ir1(r->ir, OP_F32, fn->root[i]);
}

void rule_no_reductions(struct rule *r, const struct ir_fn *fn, int i, uint8_t axis, const char *who,
                        const char *text)
{
    for (int op = 0; op < OP_COUNT; op++)
        if (ir_op_is_reduction(op) && (ir_op_axis(op) & axis) &&
            ir_depends_on(r->ir, fn->root[i], (enum ir_op)op, -1))
            rule_broken(r, fn, i, text, who);
}

void rule_mods(struct rule *r)
{
    static const char *const name[MOD_COUNT] = {"query_mod", "key_mod", "value_mod", "output_mod"};
    for (int m = 0; m < MOD_COUNT; m++)
        for (int s = 0; s < r->ir->mod[m].n_stages; s++) {
            struct ir_stage *stage = &r->ir->mod[m].stage[s];
            for (int i = 0; i < stage->fn.n_roots; i++)
                rule_number(r, &stage->fn, i, SPAN_Q | SPAN_DIM, name[m], "must be one value per element");
        }
}

/* Where a row value is made, or the function that hands on a row state as it is; 0: by the prelude. */
static int final_line(const struct ir *ir, int i)
{
    const struct ir_fn *fn = ir_results(ir);
    const struct ir_node *n = &ir->node[fn->root[1 + i]];
    const struct ir_at at = n->line > 0 ? (struct ir_at){n->file, n->line} : fn->at;
    return at.file == 1 ? at.line : 0;
}

/* --problem could not tell a dim or an argument from its own words, nor a call in Python an argument from its
   keywords. */
static void check_word(struct rule *r, const char *name, int line, bool is_dim)
{
    static const struct {
        const char *name, *what;
        bool of_dims;
    } words[] = {
        {"dtype", "a word of --problem", true},           {"unaligned", "a word of --problem", true},
        {"folded", "a word of --problem", true},          {"deterministic", "a word of --problem", true},
        {"self", "a word of calls in Python", false},     {"stream", "a word of calls in Python", false},
        {"context", "a word of calls in Python", false},  {"arch", "a word of calls in Python", false},
        {"backward", "a word of calls in Python", false}, {"json", "a word of calls in Python", false}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(words[i].name, name) != 0 || (is_dim && !words[i].of_dims))
            continue;
        diag_add(r->diag, r->ir->file[1], line, "'%s' is %s; use another name", name, words[i].what);
        r->ok = false;
    }
}

static void check_words(struct rule *r)
{
    const struct ir *ir = r->ir;
    for (int i = 0; i < ir->n_finals; i++)
        check_word(r, ir->final[i].name, final_line(ir, i), false);
    for (int i = 0; i < ir->n_inputs; i++)
        check_word(r, ir->input[i].name, ir->input[i].line, false);
    for (int i = 0; i < ir->maps.n_tensors; i++)
        check_word(r, ir->maps.tensor[i].name, ir->maps.tensor[i].line, false);
    for (int i = 0; i < ir->n_free; i++)
        check_word(r, ir->free_name[i], 0, true);
}

static bool is_gradient_of(const char *name, const char *of)
{
    return name[0] == 'd' && strcmp(name + 1, of) == 0;
}

bool is_argument_of_some_kind(const char *name)
{
    static const char *const names[] = {"q",  "k",  "v",  "o",  "x",       "y",         "do", "dq",
                                        "dk", "dv", "dx", "dy", "q_start", "mask_kept", NULL};
    return is_listed(names, name);
}

bool is_argument_of_kind(const struct ir *ir, const char *name)
{
    return is_listed(kinds[ir->kind].arguments, name);
}

/* What else of the passes has the name of a row value: an argument of calls, an input or the
   gradient of one, the gradient of another row value. NULL: nothing; else a phrase in `text`. */
static const char *namesake(const struct ir *ir, const char *name, char *text, size_t size)
{
    if (is_argument_of_some_kind(name) || is_argument_of_kind(ir, name))
        return "an argument of calls";
    for (int k = 0; k < ir->n_inputs; k++) {
        if (strcmp(ir->input[k].name, name) == 0)
            return "an input";
        if (is_gradient_of(name, ir->input[k].name) && ir->input[k].grad) {
            snprintf(text, size, "the gradient of the input '%s'", ir->input[k].name);
            return text;
        }
    }
    for (int k = 0; k < ir->n_finals; k++)
        if (is_gradient_of(name, ir->final[k].name)) {
            snprintf(text, size, "the gradient of the row value '%s'", ir->final[k].name);
            return text;
        }
    return NULL;
}

void rule_names(struct rule *r)
{
    struct ir *ir = r->ir;
    char text[NAME_MAX_BYTES + 40];
    for (int i = 0; i < ir->n_finals; i++) {
        const char *other = namesake(ir, ir->final[i].name, text, sizeof text);
        if (!other)
            continue;
        diag_add(r->diag, ir->file[1], final_line(ir, i), "the row value '%s' has the name of %s; rename it",
                 ir->final[i].name, other);
        r->ok = false;
    }
    for (int i = 0; i < ir->n_inputs; i++) {
        for (int k = 0; k < ir->n_inputs + ir->n_finals; k++) {
            const bool row_value = k >= ir->n_inputs;
            const char *of = row_value ? ir->final[k - ir->n_inputs].name : ir->input[k].name;
            if (!is_gradient_of(ir->input[i].name, of))
                continue;
            diag_add(r->diag, ir->file[1], ir->input[i].line,
                     "the input '%s' has the name of the gradient of the %s '%s'; rename one",
                     ir->input[i].name, row_value ? "row value" : "input", of);
            r->ok = false;
        }
    }
    check_words(r);
}

/* What is before an element is there in rows alone. */
static void forbid_scans(const struct ir *ir, struct diag *diag)
{
    const char *why = kinds[ir->kind].no_scans;
    for (int i = 0; i < ir->n_nodes && why; i++)
        if (ir_op_is_scan(ir->node[i].op))
            diag_add(diag, ir->file[ir->node[i].file], ir->node[i].line, "%s belongs in rowwise { ... }%s",
                     ir_op_name(ir->node[i].op), why);
}

bool check(struct ir *ir, struct diag *diag)
{
    const int before = diag->n;
    forbid_scans(ir, diag);
    if (diag->n > before)
        return false;
    return kinds[ir->kind].check(ir, diag) && !ir->failed;
}
