/*
 * constants.c: numbers of a spec that f32 does not hold, in which kernels compute. In: a number that stands
 * in a formula, was folded there, or is a default, as what loads the spec may have set it (param). Out: a
 * sentence that says why, and what would work. Infinity stays: masks and starting values mean it.
 */
#include "gen/lang/slots.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

static const struct ir_param *param_of(const struct ir *ir, double value)
{
    for (int i = 0; i < ir->n_params; i++)
        if (ir->param[i].value == value)
            return &ir->param[i];
    return NULL;
}

const char *constant_trouble(const struct ir *ir, double value, char *out, size_t size)
{
    const double magnitude = fabs(value);
    const bool large = isfinite(value) && magnitude > (double)FLT_MAX;
    const bool small = value != 0 && magnitude < (double)FLT_MIN;
    const struct ir_param *param = param_of(ir, value);
    char what[NAME_MAX_BYTES + 48];
    if (!large && !small)
        return NULL;
    if (param)
        snprintf(what, sizeof what, "parameter '%s', which is %.6g,", param->name, value);
    else
        snprintf(what, sizeof what, "the constant %.6g", value);
    if (large)
        snprintf(
            out, size,
            "%s is beyond the largest number of f32, 3.4e38, in which kernels compute: take a smaller one, "
            "or write inf where no number is meant",
            what);
    else
        snprintf(
            out, size,
            "%s is below 1.2e-38, the smallest number that f32 holds to all digits, and kernels may take "
            "it for 0: write 0.0, or a larger one, as 1e-37",
            what);
    return out;
}

void require_constant(lua_State *lua, const char *who, double value)
{
    char why[320];
    if (constant_trouble(tracer_of(lua)->ir, value, why, sizeof why))
        luaL_error(lua, "%s: %s", who, why);
}
