/*
 * run_verify.c: outputs of a run against the host device. In: a run whose outputs are on the host. Out: a
 * line of the report for each output with its largest absolute and its relative L2 error, exit code 1 beyond
 * the bound. The reference is computed from f32 copies of the tensors (exact for f16 and bf16), into f32, so
 * that only the run's own rounding counts; on all rows, or on a random ascending sample. Gradients sum over
 * rows, so all rows are looked at, with o and the finals computed anew; where that takes too long, the pass
 * runs once more with the seeds of a sample of rows alone, and all elements of its gradients are compared.
 * Copies are freed here.
 */
#include "gen/ir/kind.h"
#include "gen/tool/run.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROWS = 2048, LEAST_ROWS = 64 };
static const double MOST_WORK = 4e9;        /* multiplications of the reference: some seconds */
static const double MOST_WHOLE_WORK = 16e9; /* where no sample of rows says enough */
static const double BACKWARD_WORK =
    6.0; /* of a row, in forward passes: forward again, and five products for two */

struct reference {
    struct run_tensor tensor[MAX_ARGS]; /* host is NULL where the run's own serves */
    lathe_arg arg[MAX_ARGS];
    int64_t *row;
    int64_t n_rows;
    int64_t all_rows;
};

double run_bound(lathe_dtype dtype)
{
    switch (dtype) {
    case LATHE_F16:
        return 4e-3;
    case LATHE_BF16:
        return 2e-2;
    case LATHE_F64:
        return 1e-12;
    case LATHE_NONE:
    case LATHE_F32:
    case LATHE_I32:
    case LATHE_U8:
    case LATHE_F8_E4M3:
    case LATHE_F8_E5M2:
    case LATHE_I8:
        break;
    }
    return 4e-5; /* f32: tensor cores multiply it as two numbers of bf16, which are off by up to 2^-16 */
}

/* Weights of e4m3 are off by up to 2^-4 each, of which o is made; finals are made of their scores, in f32,
   whose sums the tensor core keeps to some 14 bits: as those of bf16. */
static double bound_of(const struct run *run, int i)
{
    if (!lathe__is_narrow(run->problem.dtype[DTYPE_Q]))
        return run_bound(run->problem.dtype[DTYPE_USUAL]);
    return strcmp(run->tensor[i].arg.name, "o") == 0 ? 6e-2 : run_bound(LATHE_BF16);
}

static double work_of_row(const struct run *run)
{
    double elements = 8.0;
    if (kinds[run->ir->kind].host_row_work)
        return kinds[run->ir->kind].host_row_work(&run->problem);
    for (int i = 0; i < run->n; i++)
        elements += (double)run->tensor[i].count;
    return elements;
}

/* Points of maps, and sequences of tokens, are looked at all at once. */
static bool has_no_rows(const struct run *run)
{
    return !kinds[run->ir->kind].host_rows;
}

static int64_t count_rows(const struct run *run)
{
    return has_no_rows(run) ? 1 : kinds[run->ir->kind].host_rows(&run->problem);
}

/* Results that may depend on all rows, or whose rows lie beside each other, are compared as one long row
 * each. */
static bool is_one(const struct run *run)
{
    bool one = run_is_backward(run) || has_no_rows(run) || run->ir->inner;
    for (int i = 0; i < run->ir->n_finals; i++)
        one |= run->ir->final[i].total;
    return one;
}

static bool take_all(const struct run *run, struct reference *ref)
{
    ref->n_rows = ref->all_rows = count_rows(run) > 0;
    ref->row = calloc(1, sizeof *ref->row);
    return ref->row != NULL;
}

/* One row out of each of n equal parts: ascending and distinct. `work`: of one row. */
static int64_t *sample_rows(const struct run *run, double work, int64_t all, int64_t *out)
{
    struct random r = {run->o->seed + UINT64_C(77)};
    const double affordable = MOST_WORK / work;
    int64_t n = affordable > MOST_ROWS ? MOST_ROWS : (int64_t)affordable;
    n = n < LEAST_ROWS ? LEAST_ROWS : n;
    n = n > all ? all : n;
    int64_t *row = malloc((size_t)(n + 1) * sizeof *row);
    for (int64_t i = 0; row && i < n; i++) {
        const int64_t first = all / n * i + all % n * i / n;
        const int64_t next = all / n * (i + 1) + all % n * (i + 1) / n;
        row[i] = first + (int64_t)(random_next(&r) % (uint64_t)(next - first));
    }
    *out = n;
    return row;
}

static bool take_some(const struct run *run, struct reference *ref)
{
    ref->all_rows = count_rows(run);
    ref->row = sample_rows(run, work_of_row(run), ref->all_rows, &ref->n_rows);
    return ref->row != NULL;
}

/* Results have f32, so what must have their dtype has it, too. Numbers of 8 bits go beside f32 and f64 as
 * they are. */
static bool is_widened(const struct run *run, const struct run_tensor *t)
{
    const struct sig_arg *a = &run->sig.arg[t->sig];
    return (lathe__has_role_dtype(a) || a->halves) && lathe_dtype_size(t->arg.dtype) == 2;
}

static bool copy_tensor(const struct run *run, int i, struct reference *ref)
{
    const struct run_tensor *t = &run->tensor[i];
    struct run_tensor *c = &ref->tensor[i];
    const bool output = run_is_output(run, t);
    if (!output && !is_widened(run, t))
        return true;
    const bool exact = t->arg.dtype == LATHE_F64 || t->arg.dtype == LATHE_I32 || t->arg.dtype == LATHE_U8;
    const lathe_dtype dtype = exact ? t->arg.dtype : LATHE_F32;
    c->host = calloc((size_t)t->count + 1, lathe_dtype_size(dtype));
    if (!c->host)
        return false;
    /* As the run's own: o of no sequence stays as it is, a state of none, and a slot of no point. */
    if (output && (run->sig.arg[t->sig].rare || run->sig.arg[t->sig].kept_by))
        memset(c->host, 0xff, (size_t)t->count * lathe_dtype_size(dtype));
    for (int64_t k = 0; k < t->count && output && t->arg.dtype == LATHE_I8; k++) /* has no NaN */
        dtype_store(dtype, c->host, k, -1.0);
    ref->arg[i].dtype = dtype;
    ref->arg[i].data = c->host;
    for (int64_t k = 0; k < t->count && !output; k++)
        dtype_store(dtype, c->host, k, dtype_load(t->arg.dtype, t->host, k));
    return true;
}

struct difference {
    double largest;
    double sum;    /* of squared differences */
    double size;   /* of squared references */
    int64_t wrong; /* NaN or infinite where the reference is not, or the other way round */
    int64_t nan;   /* in rows without a reference */
};

/* An infinity stands for what is too large for the tensor's dtype: f16 ends at 65504. */
static bool is_too_large(lathe_dtype dtype, double wanted, double got)
{
    double rounded = 0; /* room for one element of any dtype */
    if (!isinf(got) || !isfinite(wanted))
        return false;
    dtype_store(dtype, &rounded, 0, wanted * (1.0 + run_bound(dtype)));
    return dtype_load(dtype, &rounded, 0) == got;
}

/* off_of_narrow: relative, of a value ahead of its rounding to 8 bits. */
static void compare_one(lathe_dtype dtype, double got, double wanted, double off_of_narrow,
                        struct difference *d)
{
    if (is_too_large(dtype, wanted, got))
        return;
    if (dtype_is_rounded(dtype, got, wanted, off_of_narrow * fabs(wanted))) {
        d->size += wanted * wanted;
        return;
    }
    if (!isfinite(got) || !isfinite(wanted)) {
        d->wrong += !(got == wanted || (isnan(got) && isnan(wanted)));
        return;
    }
    const double off = fabs(got - wanted);
    d->largest = off > d->largest ? off : d->largest;
    d->sum += off * off;
    d->size += wanted * wanted;
}

static void compare(const struct run *run, int i, const struct reference *ref, struct difference *d)
{
    const struct run_tensor *t = &run->tensor[i];
    const int64_t length = ref->all_rows ? t->count / ref->all_rows : 0;
    int64_t next = 0;
    for (int64_t row = 0; row < ref->all_rows; row++) {
        const bool known = next < ref->n_rows && ref->row[next] == row;
        next += known;
        for (int64_t k = row * length; k < (row + 1) * length; k++) {
            const double got = dtype_load(t->arg.dtype, t->host, k);
            if (known)
                compare_one(t->arg.dtype, got, dtype_load(ref->arg[i].dtype, ref->arg[i].data, k),
                            bound_of(run, i), d);
            else
                d->nan += isnan(got);
        }
    }
}

/* A gradient may cancel: that of a number added to all scores of a row is 0, and so are those of q and k
 * where a row has one key. What is left is rounding of the terms that cancel, of which nothing follows. Such
 * a one is measured by the largest gradient of the pass, which is made of the same terms. */
static const double CANCELLED = 1e-24; /* of a gradient's squared size; rounding leaves some 1e-30 */

bool run_cancels(double size, double largest)
{
    return size < CANCELLED * largest;
}

/* largest: the squared size of the largest gradient; 0: of a forward pass. */
static bool report(const struct run *run, int i, const struct reference *ref, const struct difference *of,
                   double largest)
{
    struct facts *f = run->facts;
    const char *name = run->tensor[i].arg.name;
    const struct difference d = *of;
    const double bound = bound_of(run, i);
    const bool is_rounding = run_cancels(of->size, largest);
    const double size = is_rounding ? largest : d.size;
    const double relative = size > 0.0 ? sqrt(d.sum / size) : sqrt(d.sum);
    const bool good = relative <= bound && d.wrong == 0 && d.nan == 0;
    facts_open(f, NULL, '{');
    facts_string(f, "result", name);
    facts_number(f, "max_abs", d.largest);
    facts_number(f, "relative_l2", relative);
    facts_bool(f, "of_largest_gradient", is_rounding);
    facts_number(f, "bound", bound);
    facts_bool(f, "ok", good);
    facts_close(f);
    facts_line(f, "verify     %s: max abs %.3e, relative L2 %.3e (bound %.0e), ", name,
               number_shown(d.largest), number_shown(relative), bound);
    if (is_one(run))
        facts_line(f, "%" PRId64 " elements: %s\n", run->tensor[i].count, good ? "ok" : "FAILED");
    else
        facts_line(f, "%" PRId64 " of %" PRId64 " rows: %s\n", ref->n_rows, ref->all_rows,
                   good ? "ok" : "FAILED");
    if (is_rounding)
        facts_line(
            f, "verify     %s: it is 0 but for rounding, so its error is relative to the largest gradient\n",
            name);
    if (d.wrong)
        facts_line(f, "verify     %s: %" PRId64 " values are NaN or infinite on one side alone\n", name,
                   d.wrong);
    if (d.nan)
        facts_line(f, "verify     %s: %" PRId64 " NaN in rows that were not compared\n", name, d.nan);
    return good;
}

static int out_of_memory(void)
{
    tool_complain("--verify: out of memory");
    return CODE_ENVIRONMENT;
}

static lathe_status evaluate_backward(const struct run *run, const struct reference *ref, lathe_error *err)
{
    lathe_arg arg[MAX_ARGS];
    int n = 0;
    for (int i = 0; i < run->n; i++)
        if (!run->tensor[i].from_forward)
            arg[n++] = ref->arg[i];
    if (run->seed_row)
        return host_backward_rows(run->ir, &run->sig, arg, n, run->seed_row, run->n_seed_rows, err);
    return host_backward(run->ir, &run->sig, arg, n, err);
}

static lathe_status evaluate(const struct run *run, const struct reference *ref, lathe_error *err)
{
    struct progress progress;
    if (ref->n_rows == 0)
        return LATHE_OK;
    progress_start(&progress, "evaluating the reference");
    const int64_t *rows = is_one(run) ? NULL : ref->row;
    const lathe_status status =
        run_is_backward(run) ? evaluate_backward(run, ref, err)
                             : host_forward(run->ir, &run->sig, ref->arg, run->n, rows, ref->n_rows, err);
    progress_stop(&progress);
    return status;
}

static bool report_all(const struct run *run, const struct reference *ref)
{
    struct difference d[MAX_ARGS];
    double largest = 0.0;
    bool good = true;
    memset(d, 0, sizeof d);
    for (int i = 0; i < run->n; i++) {
        if (run_is_output(run, &run->tensor[i]))
            compare(run, i, ref, &d[i]);
        if (run_is_backward(run) && d[i].size > largest)
            largest = d[i].size;
    }
    for (int i = 0; i < run->n; i++)
        if (run_is_output(run, &run->tensor[i]))
            good = report(run, i, ref, &d[i], largest) && good;
    return good;
}

static int verify(const struct run *run, struct reference *ref)
{
    lathe_error err = {0};
    run_args(run, ref->arg);
    if (!(is_one(run) ? take_all(run, ref) : take_some(run, ref)))
        return out_of_memory();
    for (int i = 0; i < run->n; i++) {
        if (!copy_tensor(run, i, ref))
            return out_of_memory();
    }
    if (evaluate(run, ref, &err) != LATHE_OK)
        return complain_error(&err);
    return report_all(run, ref) ? CODE_OK : CODE_FAILED;
}

static bool has_outputs(const struct run *run)
{
    bool any = false;
    for (int i = 0; i < run->n; i++)
        any |= run_is_output(run, &run->tensor[i]);
    return any;
}

static double work_of_all(const struct run *run)
{
    return (double)count_rows(run) * work_of_row(run) * BACKWARD_WORK;
}

bool run_verify_samples(const struct run *run)
{
    return run->o->verify && run_is_backward(run) && !has_no_rows(run) && work_of_all(run) > MOST_WHOLE_WORK;
}

int run_verify_fits(const struct run *run)
{
    if (run->o->verify && !has_outputs(run)) {
        tool_complain("--verify: the problem leaves every result out, so nothing can be compared");
        return CODE_USAGE;
    }
    if (!run->o->verify || !is_one(run) || run_verify_samples(run) || work_of_all(run) <= MOST_WHOLE_WORK)
        return CODE_OK;
    tool_complain(
        "--verify: the results of this problem depend on all of its rows, which takes the host device %.2g "
        "multiplications; it does at most %.2g: choose sizes whose product is %.0f times smaller",
        work_of_all(run), MOST_WHOLE_WORK, ceil(work_of_all(run) / MOST_WHOLE_WORK));
    return CODE_USAGE;
}

/* ---- a sample of seeds ----------------------------------------------------------------------------- */

static bool is_seed(const struct run *run, const struct run_tensor *t)
{
    const char *name = t->arg.name;
    if (run_is_output(run, t) || name[0] != 'd')
        return false;
    if (kinds[run->ir->kind].result && strcmp(name + 1, kinds[run->ir->kind].result) == 0)
        return true;
    for (int i = 0; i < run->ir->n_finals; i++)
        if (strcmp(name + 1, run->ir->final[i].name) == 0)
            return true;
    return false;
}

/* The row of element k: rows are whole, or lie beside each other along the last dim. */
static int64_t row_of(const struct run *run, const struct run_tensor *t, int64_t rows, int64_t k)
{
    const int64_t length = t->count / rows;
    const int64_t beside = run->problem.dim[SYM_ROWS];
    if (!run->ir->inner || length == 1)
        return k / length;
    return k / beside / length * beside + k % beside;
}

static void drop_other_seeds(const struct run *run, const bool *chosen, int64_t rows)
{
    for (int i = 0; i < run->n; i++) {
        const struct run_tensor *t = &run->tensor[i];
        if (!is_seed(run, t))
            continue;
        for (int64_t k = 0; k < t->count; k++)
            if (!chosen[row_of(run, t, rows, k)])
                dtype_store(t->arg.dtype, t->host, k, 0.0);
    }
}

/* The results of the run itself, which nobody can compare; then they are as a run finds them. */
static bool search_results(const struct run *run)
{
    int64_t nan = 0;
    for (int i = 0; i < run->n; i++) {
        const struct run_tensor *t = &run->tensor[i];
        const int64_t before = nan;
        if (!run_is_output(run, t))
            continue;
        for (int64_t k = 0; k < t->count; k++)
            nan += isnan(dtype_load(t->arg.dtype, t->host, k));
        if (nan > before)
            facts_line(run->facts, "verify     %s: %" PRId64 " NaN with the seeds of all rows: FAILED\n",
                       t->arg.name, nan - before);
        memset(t->host, 0xff, t->bytes);
    }
    return nan == 0;
}

int run_verify_sample(struct run *run)
{
    const int64_t rows = count_rows(run);
    bool *chosen = calloc((size_t)rows + 1, sizeof *chosen);
    run->seed_row = sample_rows(run, work_of_row(run) * BACKWARD_WORK, rows, &run->n_seed_rows);
    if (!chosen || !run->seed_row) {
        free(chosen);
        return out_of_memory();
    }
    for (int64_t i = 0; i < run->n_seed_rows; i++)
        chosen[run->seed_row[i]] = true;
    drop_other_seeds(run, chosen, rows);
    free(chosen);
    facts_line(
        run->facts,
        "verify     of a launch with the seeds of %" PRId64 " of %" PRId64
        " rows, those of the others zero: all rows take the host device %.2g multiplications, above %.2g\n",
        run->n_seed_rows, rows, work_of_all(run), MOST_WHOLE_WORK);
    return search_results(run) ? CODE_OK : CODE_FAILED;
}

/* ---- the door -------------------------------------------------------------------------------------- */

int run_verify(const struct run *run)
{
    struct reference ref;
    memset(&ref, 0, sizeof ref);
    const int code = verify(run, &ref);
    for (int i = 0; i < run->n; i++)
        free(ref.tensor[i].host);
    free(ref.row);
    return code;
}
