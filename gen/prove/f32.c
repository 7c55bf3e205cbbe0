/*
 * f32.c: what a spec gives in f32 against what it gives in double precision, as kernels compute in f32.
 * In: pairs of numbers. Out: a share of the verdict "f32 = double". f32 may be as wrong as the double result
 * becomes when what is read moves by one rounding of f32, times BOUND: a large score has lost its digits
 * before anybody uses it. Beyond that, digits are lost by the formula, or a value on the way leaves f32's
 * range. Where the result itself is outside of f32's range, nothing is compared.
 */
#include "gen/prove/prove.h"
#include "gen/prove/proof.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

static const double BOUND = 64; /* roundings; formulas of some dozen operations make about ten */
static const double HALF_DIGIT = 0x1p-24;

/* ---- one value ----------------------------------------------------------------------------------- */

void f32_begin(const struct prover *p, struct proof *out)
{
    proof_begin(out, "f32 = double", fmax(BOUND, p->reach.n_nodes / 2));
}

bool f32_compare(struct proof *out, double exact, double single, double moved, double size)
{
    if (!(fabs(exact) <= F32_LARGEST) || exact == single)
        return false;
    if (!isfinite(moved))
        return false;
    const double unit = moved + HALF_DIGIT * fmax(size, fabs(exact)) + (double)FLT_MIN;
    const double error = isfinite(single) ? fabs(single - exact) / unit : (double)INFINITY;
    out->n_tried++;
    return proof_record(out, error);
}

void f32_enter(struct prover *p, enum eval_precision precision, struct eval_tape *tape)
{
    struct eval_mode *mode = &p->mode;
    mode->precision = precision;
    mode->branches = tape;
    mode->bad_node = mode->bad_op = -1;
    mode->bad_line = 0;
    tape->at = 0;
    tape->replay = precision != EVAL_ROUNDED;
    if (!tape->replay)
        tape->n = 0;
}

void f32_leave(struct prover *p)
{
    p->mode.precision = EVAL_DOUBLE;
    p->mode.branches = NULL;
}

int f32_line(const struct prover *p, int root)
{
    if (p->mode.bad_op >= 0 && p->mode.bad_line > 0)
        return p->mode.bad_line;
    return root < 0 ? 0 : proof_line(p->ir, p->mode.bad_node >= 0 ? p->mode.bad_node : root);
}

const char *f32_cause(const struct prover *p, char *out, size_t size)
{
    if (p->mode.bad_op >= 0)
        snprintf(out, size, ": '%s' leaves the range of f32 first", ir_op_name(p->mode.bad_op));
    else
        snprintf(out, size, ": digits are lost on the way");
    return out;
}

void f32_conclude(struct proof *out)
{
    if (out->passed && out->n_tried > 0 && !out->note[0])
        snprintf(out->note, sizeof out->note, "in roundings of what is read, each as it moves the result");
}
