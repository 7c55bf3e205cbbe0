/*
 * sites.h: reads of inputs whose gradients are wanted, and the adjoints of stages of vector mods.
 */
#ifndef LATHE_HEADS_SITES_H
#define LATHE_HEADS_SITES_H

#include "gen/heads/mods.h"

#include <stdbool.h>

struct ir;
struct ir_fn;
struct ir_stage;
struct text_buf;

enum { SITES_WHY_BYTES = 256 };
/* Elements that a block of heads/zero_and_sum.cuh takes along a dim: INPUT_THREADS of the last (1),
   INPUT_ROWS of the one before (2), one of others. */
enum { INPUT_THREADS = 256, INPUT_ROWS = 16 };
int input_tile(int dims_from_last);
/* Of a stage, or of root 0 of a function with `seed` as its adjoint, without sums over what a leaf lacks;
   *element: the adjoint of LEAF_X.
   `wanted`: by input, whether its gradient is. False: not expressible, and why. */
bool sites_of_stage(struct ir *ir, const struct ir_stage *stage, const bool *wanted, struct stage_back *out,
                    char *why);
bool sites_of_function(struct ir *ir, const struct ir_fn *fn, int seed, const bool *wanted,
                       struct site_list *out, int *element, char *why);
/* After lowering: reads that became constants are gone, and forms are known, of what has no columns. */
void sites_settle(const struct ir *ir, struct site_list *list);
/* As ir_print has functions: what each read gets, and the adjoint of a stage. */
void sites_print(const struct ir *ir, const char *of, const struct site_list *list, struct text_buf *out);
void stages_print(const struct ir *ir, const struct stage_back (*stage)[MAX_STAGES], struct text_buf *out);

#endif
