/*
 * cmd_bench.c: `lathe bench`: the rate of a spec over lengths. In: parsed options. Out: a line for each
 * length on standard output, and a picture where one is asked for. A launch is measured as `lathe run` and
 * `lathe tune` do it.
 */
#include "gen/ir/kind.h"
#include "gen/tool/bench.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { USUAL_REPEAT = 7 };

/* "16k" is 16384. *end: behind it. */
static int64_t read_length(const char *text, char **end)
{
    errno = 0;
    long long value = strtoll(text, end, 10);
    if (*end > text && (**end == 'k' || **end == 'K')) {
        value = value < (INT64_C(1) << 40) ? value * 1024 : 0;
        ++*end;
    }
    return errno || *end == text || (**end && **end != ',') ? 0 : value;
}

static int read_lengths(struct bench *b)
{
    const char *text = b->o.lengths;
    for (;;) {
        char *end = NULL;
        const int64_t length = read_length(text, &end);
        if (length < 1 || (b->n > 0 && length <= b->point[b->n - 1].length)) {
            tool_complain("--lengths: expected whole numbers that rise, such as 512,1k,16k, given '%s'",
                          b->o.lengths);
            return CODE_USAGE;
        }
        if (b->n == BENCH_LENGTHS) {
            tool_complain("--lengths: expected at most %d, given more", BENCH_LENGTHS);
            return CODE_USAGE;
        }
        b->point[b->n++].length = length;
        if (!*end)
            return CODE_OK;
        text = end + 1;
    }
}

/* The size that lengths take the place of. */
static int find_size(struct bench *b)
{
    const struct kind_row *kind = &kinds[b->ir->kind];
    b->over = b->o.over ? b->o.over : kind->recurrent ? "t" : kind->tiles ? "q" : kind->points ? NULL : "n";
    if (!b->over)
        tool_complain("bench: %s is %s, whose dims are its own: name the one that is to grow with --over "
                      "(`lathe explain "
                      "%s` prints them)",
                      b->ir->name, kind->name, b->o.operand[0]);
    else if (tool_names_size(b->o.problem, b->over))
        tool_complain("bench: '%s' is what --lengths are of: leave it out of --problem, or name another size "
                      "with --over",
                      b->over);
    else
        return CODE_OK;
    return CODE_USAGE;
}

/* Where there is no GPU, only who asks for the host device gets its rates. */
static int find_device(struct bench *b)
{
    lathe_ctx *ctx = NULL;
    lathe_error err = {0};
    const lathe_options options = {.device = b->o.device, .cache_dir = b->o.cache_dir};
    if (lathe_ctx_create(&ctx, &options, &err) != LATHE_OK)
        return complain_error(&err);
    b->is_host = lathe_ctx_device(ctx) == LATHE_DEVICE_HOST;
    snprintf(b->device, sizeof b->device, "%s", lathe_ctx_device_name(ctx));
    lathe_ctx_destroy(ctx);
    if (!b->is_host || b->o.device == LATHE_DEVICE_HOST)
        return CODE_OK;
    tool_complain("bench: there is no GPU to measure on. --device host measures the host device, whose "
                  "rates, of double "
                  "precision on the CPU, say nothing about kernels");
    return CODE_ENVIRONMENT;
}

static double median(const double *sorted, int n)
{
    return n % 2 ? sorted[n / 2] : 0.5 * (sorted[n / 2 - 1] + sorted[n / 2]);
}

static int time_point(struct bench *b, struct run *run, double *seconds, struct bench_point *p)
{
    lathe_error err = {0};
    struct run_work work;
    struct text_buf text = {0};
    if (run_measure(run, NULL, seconds, p->label, &err) != LATHE_OK)
        return complain_error(&err);
    if (b->is_host)
        snprintf(p->label, sizeof p->label, "host device");
    run_count_work(run, &work);
    p->seconds = median(seconds, b->o.repeat);
    p->fastest = seconds[0];
    p->slowest = seconds[b->o.repeat - 1];
    p->rate = work.amount / p->seconds * 1e-12;
    b->is_flop = work.is_flop;
    problem_text(&run->sig, &run->problem, &text);
    snprintf(b->problem, sizeof b->problem, "%s", text.data ? text.data : "");
    text_free(&text);
    return CODE_OK;
}

static int measure_point(struct bench *b, double *seconds, struct bench_point *p)
{
    struct run *run = calloc(1, sizeof *run); /* large for a stack */
    struct text_buf sizes = {0};
    struct options o = b->o;
    text_add(&sizes, "%s%s%s=%" PRId64, b->o.problem ? b->o.problem : "",
             b->o.problem && *b->o.problem ? "," : "", b->over, p->length);
    int code = CODE_ENVIRONMENT;
    p->rate = (double)NAN;
    if (!run || sizes.failed) {
        tool_complain("out of memory");
    } else {
        o.problem = sizes.data;
        run->o = &o;
        run->ir = b->ir;
        code = run_prepare(run, false);
        if (code == CODE_OK)
            code = time_point(b, run, seconds, p);
        run_free(run);
    }
    text_free(&sizes);
    free(run);
    return code;
}

/* ---- what is said ----------------------------------------------------------------------------------- */

static void report_point(const struct bench *b, const struct bench_point *p, struct facts *f)
{
    char percent[32] = "";
    facts_open(f, NULL, '{');
    facts_integer(f, "length", p->length);
    facts_number(f, "seconds", p->seconds);
    facts_number(f, "fastest", p->fastest);
    facts_number(f, "slowest", p->slowest);
    facts_number(f, b->is_flop ? "tflop_per_second" : "tb_per_second", p->rate);
    facts_string(f, "kernel", p->label);
    facts_close(f);
    if (b->limit > 0)
        snprintf(percent, sizeof percent, "%7.1f %%", 100 * p->rate / b->limit);
    facts_line(f, "%10" PRId64 " %12.6g ms %12.5g %s %s\n", p->length, p->seconds * 1e3, p->rate, percent,
               p->label);
}

static void report(struct bench *b, struct facts *f)
{
    const char *unit = b->is_flop ? "TFLOP/s" : "TB/s";
    facts_string(f, "spec", b->ir->name);
    facts_string(f, "pass", lathe__pass_text(b->o.pass));
    facts_string(f, "device", b->device);
    facts_string(f, "problem", b->problem);
    facts_string(f, "over", b->over);
    facts_integer(f, "launches", b->o.repeat);
    if (b->limit > 0)
        facts_number(f, "data_sheet", b->limit);
    facts_line(f, "device     %s\nproblem    %s\n", b->device, b->problem);
    if (b->limit > 0)
        facts_line(f, "limit      %.4g %s, by its data sheet\n", b->limit, unit);
    facts_line(f, "%10s %15s %12s%s   kernel; each time is the median of %d launches\n", b->over, "time",
               unit, b->limit > 0 ? "  of limit" : "", b->o.repeat);
    facts_open(f, "points", '[');
    for (int i = 0; i < b->n; i++)
        report_point(b, &b->point[i], f);
    facts_close(f);
}

static int measure_all(struct bench *b)
{
    double *seconds = calloc((size_t)b->o.repeat, sizeof *seconds);
    int code = seconds ? CODE_OK : CODE_ENVIRONMENT;
    if (!seconds)
        tool_complain("out of memory");
    for (int i = 0; i < b->n && code == CODE_OK; i++)
        code = measure_point(b, seconds, &b->point[i]);
    free(seconds);
    b->limit = b->is_host ? 0 : bench_limit(b->device, b->is_flop);
    return code;
}

static int bench(struct bench *b)
{
    struct text_buf text = {0};
    struct facts facts;
    int code = find_size(b);
    if (code == CODE_OK && b->o.png && !file_is_writable(b->o.png))
        code = CODE_USAGE;
    if (code == CODE_OK)
        code = find_device(b);
    if (code == CODE_OK)
        code = measure_all(b);
    if (code != CODE_OK)
        return code;
    facts_begin(&facts, &text, b->o.json);
    report(b, &facts);
    facts_end(&facts);
    code = tool_print(&text) ? CODE_OK : CODE_ENVIRONMENT;
    if (b->is_host)
        fputs("lathe: bench: these are rates of the host device, which say nothing about kernels\n", stderr);
    else if (b->limit <= 0)
        fprintf(stderr,
                "lathe: bench: no limit is drawn: what the data sheet of %s says is not in lathe's table\n",
                b->device);
    return code == CODE_OK && b->o.png ? bench_picture(b) : code;
}

int cmd_bench(const struct options *o)
{
    int code = CODE_ENVIRONMENT;
    if (!o->lengths) {
        tool_complain("bench: expected --lengths, such as 1k,4k,16k");
        return CODE_USAGE;
    }
    struct bench *b = calloc(1, sizeof *b); /* large for a stack */
    if (!b) {
        tool_complain("out of memory");
        return code;
    }
    b->o = *o;
    b->o.repeat = o->repeat > 1 ? o->repeat : USUAL_REPEAT;
    code = read_lengths(b);
    if (code == CODE_OK)
        b->ir = tool_spec(o->operand[0], o, &code);
    if (b->ir)
        code = bench(b);
    ir_free(b->ir);
    free(b);
    return code;
}
