/*
 * tuning.c: what a choice that `lathe tune` measured holds for. In: a spec, a problem, a device. Out: a text;
 * equal texts mean that the choice may be taken.
 */
#include "gen/arguments/problem.h"
#include "gen/base/text.h"
#include "gen/ir/spec.h"
#include "gen/pipeline/pick.h"
#include "gen/plan/request.h"

void tuning_text(const struct kernel_request *r, struct text_buf *out)
{
    const struct device *device = r->device;
    text_add(out, "lathe %s\nsm %d, %d of them, %d bytes of shared memory\n%s\n", LATHE_VERSION, device->sm,
             device->sm_count, device->smem_bytes, lathe__pass_text(r->pass));
    problem_built_text(r->sig, r->problem, out);
    text_add(out, "\nby name: "); /* measured among these alone */
    plan_names(r->ir, r->pass, device, out);
    text_add(out, "\n");
    ir_print(r->ir, out);
}
