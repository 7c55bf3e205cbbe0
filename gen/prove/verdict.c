/*
 * verdict.c: how a verdict is kept: errors and their bound, who is to blame, how long there is time.
 * In: what the proofs find. Out: struct proof.
 */
#include "gen/prove/prove.h"
#include "gen/prove/proof.h"
#include "runtime/base/base.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const double WEIGHT_COUNTS = 1e-15; /* of the largest of a row; rounding of others is no matter */

double proof_distance(double a, double b, double scale)
{
    if (a == b)
        return 0;
    if (!isfinite(a) || !isfinite(b))
        return (double)INFINITY;
    return fabs(a - b) / fmax(fmax(fabs(a), fabs(b)), scale);
}

void proof_begin(struct proof *out, const char *what, double bound)
{
    *out =
        (struct proof){.what = what, .applies = true, .passed = true, .bound = bound, .trying = out->trying};
}

bool proof_record(struct proof *out, double error)
{
    if (!(error <= out->error))
        out->error = error;
    return out->passed && !(error <= out->bound);
}

bool proof_compare(struct proof *out, double error, double rounding)
{
    out->n_tried++;
    if (error <= out->bound || (!(error <= rounding) && rounding < 1))
        return proof_record(out, error);
    out->n_lost++;
    return false;
}

double proof_rounding(double largest_score)
{
    return ROUNDINGS * DBL_EPSILON * largest_score;
}

double proof_score_size(const double *score, const double *weight, int64_t n)
{
    double most = 0;
    double size = 0;
    for (int64_t j = 0; j < n; j++)
        most = fmax(most, fabs(weight[j]));
    for (int64_t j = 0; j < n; j++)
        if (fabs(weight[j]) > WEIGHT_COUNTS * most && isfinite(score[j]))
            size = fmax(size, fabs(score[j]));
    return size;
}

void proof_say_lost(struct proof *out, int line)
{
    if (!out->passed || out->n_lost == 0 || out->cut_short)
        return;
    if (out->n_lost * 100 > out->n_tried * TOO_MANY_LOST)
        proof_blame(out, line,
                    "%d of %d comparisons are of scores so large that they tell nothing: in double precision "
                    "their rounding "
                    "alone is more than the bound",
                    out->n_lost, out->n_tried);
    else
        snprintf(out->note, sizeof out->note, "%d of %d comparisons left out: of scores too large",
                 out->n_lost, out->n_tried);
}

void proof_blame(struct proof *out, int line, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    lathe__format(out->note, sizeof out->note, fmt, args);
    va_end(args);
    if (out->trying)
        snprintf(out->tried, sizeof out->tried, "%s", out->trying);
    out->passed = out->warned = false;
    out->line = line;
}

void proof_warn(struct proof *out, int line, const char *fmt, ...)
{
    va_list args;
    if (!out->passed || out->warned)
        return;
    va_start(args, fmt);
    vsnprintf(out->note, sizeof out->note, fmt, args);
    va_end(args);
    out->warned = true;
    out->line = line;
}

void proof_refused(struct proof *out, const lathe_error *err)
{
    out->error = (double)INFINITY;
    out->status = err->status;
    proof_blame(out, err->line, "%.250s", err->text);
}

int proof_line(const struct ir *ir, int node)
{
    int16_t spec_file = (int16_t)(ir->n_files - 1);
    bool *used = calloc((size_t)ir->n_nodes + 1, sizeof *used);
    int line = 0;
    if (!used)
        return 0;
    ir_mark(ir, &node, 1, used);
    for (int i = node; i >= 0 && line == 0; i--)
        if (used[i] && ir->node[i].line > 0 && ir->node[i].file == spec_file)
            line = ir->node[i].line;
    free(used);
    return line;
}

/* Seconds of this thread: other programs on the machine take nothing away from a proof. */
double proof_clock(void)
{
    struct timespec t = {0};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

bool proof_goes_on(const struct prover *p, struct proof *out, const char *what, int done)
{
    if (out->cut_short || proof_clock() < p->deadline)
        return !out->cut_short;
    out->cut_short = true;
    if (out->passed)
        snprintf(out->note, sizeof out->note, "time ran out after %d %s; the rest was not looked at", done,
                 what);
    return false;
}
