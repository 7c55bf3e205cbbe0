/*
 * tuning.c: what a choice that `lathe tune` measured holds for. In: a spec, a problem, a device. Out: a text;
 * equal texts mean that the choice may be taken.
 */
#include "gen.h"

void tuning_text(const struct ir *ir, lathe_pass pass, const struct signature *sig,
                 const struct problem *problem, const struct device *device, struct text_buf *out)
{
    text_add(out, "lathe %s\nsm %d, %d of them, %d bytes of shared memory\n%s\n", LATHE_VERSION, device->sm,
             device->sm_count, device->smem_bytes, pass == LATHE_BACKWARD ? "backward" : "forward");
    problem_built_text(sig, problem, out);
    text_add(out, "\nby name: "); /* measured among these alone */
    plan_names(ir, pass, device, out);
    text_add(out, "\n");
    ir_print(ir, out);
}
