/*
 * problem.h: the doors of problem.c and words.c: a problem from one line of text, and back.
 */
#ifndef LATHE_GEN_PROBLEM_H
#define LATHE_GEN_PROBLEM_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/recipe/bind.h"

struct ir;
struct text_buf;

/* ---- problem.c: arguments, and the one-line syntax -------------------------------------------- */

/* lathe__problem_from_args of runtime/recipe/bind.h. */
static inline lathe_status problem_from_args(const struct signature *sig, const lathe_arg *args, int n,
                                             bool need_data, struct problem *out, lathe_error *err)
{
    return lathe__problem_from_args(sig, args, n, need_data, out, err);
}
static inline int64_t product_value(const struct product *p, const struct problem *problem)
{
    return lathe__product_value(p, problem);
}
/* Is this argument of the signature there? -1 is none. */
static inline bool problem_has(const struct problem *p, int arg)
{
    return arg >= 0 && arg_in(p->present, arg);
}
/* The same by its name. */
static inline bool problem_has_named(const struct signature *sig, const struct problem *p, const char *name)
{
    return problem_has(p, lathe__arg_find(sig, name, 0));
}
/* "dtype=bf16,b=2,h=16,h_kv=4,q=1000,kv=1000,d=128,d_v=128": unnamed sizes get their defaults (b=1, h_kv=h,
   kv=q, d_v=d, ...; free dims by their names, without a default). NAME=f16 is the dtype of q, k, v or o where
   it is not that of all, and of an input declared "float" (default: the problem's), NAME=none leaves an
   optional tensor out. unaligned=q+k names tensors (of q, k, v, o) whose rows do not start at multiples of 16
   bytes, folded=k+v those that TMA does not take for their strides. Errors ARG. */
lathe_status problem_parse(const struct signature *sig, const char *text, struct problem *out,
                           lathe_error *err);
/* The same for a spec: one text serves both passes, so what only its other pass knows (dlse=f32 in a forward
   problem) is looked at and says nothing here. `sig`: of the pass that is asked for. */
lathe_status problem_parse_of(const struct ir *ir, const struct signature *sig, const char *text,
                              struct problem *out, lathe_error *err);
/* problem_parse_of, but sizes that the text does not name stay -1, and the default dtype is f64. */
lathe_status problem_named_of(const struct ir *ir, const struct signature *sig, const char *text,
                              struct problem *out, lathe_error *err);
/* Does a spec know every name in the text, for one of its passes? A library of several specs gives each its
   own. */
bool problem_is_of(const struct ir *ir, const struct signature *sig, const char *text);

/* ---- problem_text.c: a problem as text that problem_parse reads --------------------------------- */

/* "h_kv", or the name of a free dim. */
const char *sym_name(const struct signature *sig, int sym);
/* "dtype=bf16,b=1,...": every bound size, in the order of the syntax. */
void problem_text(const struct signature *sig, const struct problem *p, struct text_buf *out);
/* "dtype=bf16,d=128": what is compiled in, and what problem_parse cannot do without. */
void problem_built_text(const struct signature *sig, const struct problem *p, struct text_buf *out);
/* "mine.lua --problem dtype=bf16,d=128": operand and problem of a command line, quoted for a shell. */
void spec_words(const char *spec, const struct signature *sig, const struct problem *p, struct text_buf *out);

#endif
