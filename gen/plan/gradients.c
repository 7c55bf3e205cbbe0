/*
 * gradients.c: which gradients of a spec's inputs there are. In: a request of a backward pass. Out: yes, or a
 * sentence.
 */
#include "gen/arguments/problem.h"
#include "gen/ir/spec.h"
#include "gen/plan/planner.h"

#include <stdio.h>

bool plan_gradients_exist(const struct kernel_request *r, char *why)
{
    for (int i = 0; i < r->ir->n_inputs; i++) {
        const struct input *in = &r->ir->input[i];
        char gradient[NAME_MAX_BYTES + 2];
        snprintf(gradient, sizeof gradient, "d%s", in->name);
        if (!in->grad || in->is_scalar || problem_has_named(r->sig, r->problem, in->name) ||
            !problem_has_named(r->sig, r->problem, gradient))
            continue;
        snprintf(why, REASON_BYTES,
                 "%s is asked for and %s is left out; give %s its default, a tensor of one number whose "
                 "strides are 0",
                 gradient, in->name, in->name);
        return false;
    }
    return true;
}
