/*
 * slots.c: results of element-wise specs whose points are written where an operand says, and data for that
 * operand. In: a spec, sizes, a tensor of i32 in host memory. Out: slots that differ.
 */
#include "gen/arguments/slots.h"
#include "gen/arguments/sequences.h"
#include "gen/ir/spec.h"
#include "gen/ir/tensor.h"

#include <string.h>

bool slots_are(const struct ir *ir, const char *operand)
{
    bool found = false;
    for (int i = 0; i < ir->maps.n_tensors; i++)
        found |= ir->maps.tensor[i].slot &&
                 strcmp(ir->maps.tensor[ir->maps.tensor[i].slot - 1].name, operand) == 0;
    return found;
}

bool slots_fill(const struct ir *ir, const int64_t *dim, const lathe_arg *t, double (*unit)(void *state),
                void *state)
{
    int64_t slots = INT32_MAX;
    bool found = false;
    for (int i = 0; i < ir->maps.n_tensors; i++) {
        const struct map_tensor *to = &ir->maps.tensor[i];
        if (!to->slot || strcmp(ir->maps.tensor[to->slot - 1].name, t->name) != 0)
            continue;
        found = true;
        slots = dim[to->slots] < slots ? dim[to->slots] : slots;
    }
    if (found)
        sequences_draw_slots(t->data, tensor_count(t), slots, unit, state);
    return found;
}
