/*
 * rules.h: what every spec must keep to, and what the rules of a kind are made of.
 */
#ifndef LATHE_GEN_RULES_H
#define LATHE_GEN_RULES_H

#include <stdbool.h>
#include <stdint.h>

struct ir;
struct ir_fn;
struct diag;

/* Rules of the model that hold for a whole spec. False with diagnostics. */
bool check(struct ir *ir, struct diag *diag);

struct rule { /* one spec that is looked at */
    struct ir *ir;
    struct diag *diag;
    bool ok;
};
/* Of root i of a function. A mistake at the place of it, of a constant at that of the function: "who: text".
 */
void rule_broken(struct rule *r, const struct ir_fn *fn, int i, const char *text, const char *who);
/* It becomes f32 (a bool is a mistake) and may vary only with `allowed`; else: span_text. */
void rule_number(struct rule *r, struct ir_fn *fn, int i, uint8_t allowed, const char *who,
                 const char *span_text);
/* No reduction along `axis` below it, except where the model has one. */
void rule_no_reductions(struct rule *r, const struct ir_fn *fn, int i, uint8_t axis, const char *who,
                        const char *text);
/* Every stage of every mod gives one value per element. */
void rule_mods(struct rule *r);
/* q, k, v, o, x, y, gradients of them, q_start, mask_kept: no input and no row value has such a name. */
bool is_argument_of_some_kind(const char *name);
/* Is it one that calls of the spec's kind have beside these and what the spec declares? */
bool is_argument_of_kind(const struct ir *ir, const char *name);
/* Names of arguments, of all passes: inputs, row values and their gradients ("d" in front) share one space
   with q, k, v, o, x, y. */
void rule_names(struct rule *r);

#endif
