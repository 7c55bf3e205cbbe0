/*
 * main.c: the GPU tests: `lathe_gpu_tests [--dry] [--quick] [...]`.
 *
 * In: options, see usage below. Out: a line per group, then "N passed, N failed". Exit codes: 0 all passed, 1
 * something failed, 2 wrong usage, 77 skipped because there is no GPU. All contexts are opened here.
 */
#include "system.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_SKIPPED = 77, MAX_SPECS = 128 };

static const char USAGE[] =
    "usage: lathe_gpu_tests [--dry] [--quick] [--strict] [--only GROUP] [--case TEXT] [--random N] "
    "[--seed N]\n"
    "                       [--threads N] [--cache DIR] [--verbose] [--fault F]\n"
    "  --dry      the host device in place of the GPU: checks the tests themselves, by a case in five\n"
    "  --quick    a part of each group, for compute-sanitizer\n"
    "  --strict   a missed time bar is a failure\n"
    "  --only     groups whose name contains GROUP: lengths unequal heads dims layouts data q_start rowwise\n"
    "             random batch nsa ranks system; with commas between several; =dims is dims and not "
    "grad_dims\n"
    "  --case     of these groups the cases whose line of a failure has this text: \"seed 7920,\"; or one of "
    "these: \"t=1,|t=2,\"\n"
    "  --random   how many random problems (default 400; 40 with --quick or --dry)\n"
    "  --cache    folder for compiled kernels, kept (default: a temporary one)\n"
    "  --fault    scale or key: references with a fault, which every group of cases must find but lists and "
    "packed\n"
    "  --verbose  a line per run: its largest error as a fraction of what is allowed\n";

static bool take_number(char **argv, int argc, int *i, long long *out)
{
    if (*i + 1 >= argc) {
        return false;
    }
    char *end = NULL;
    *out = strtoll(argv[++*i], &end, 10);
    return end && *end == 0 && *out >= 0;
}

struct request {
    struct options options;
    long long random;
    const char *child;
};

static bool parse_text(struct request *r, int argc, char **argv, int *i)
{
    const char *word = argv[*i];
    if (*i + 1 >= argc) {
        return false;
    }
    if (strcmp(word, "--only") == 0) {
        r->options.only = argv[++*i];
    } else if (strcmp(word, "--case") == 0) {
        r->options.chosen = argv[++*i];
    } else if (strcmp(word, "--fault") == 0) {
        r->options.fault = strcmp(argv[++*i], "scale") == 0 ? FAULT_SCALE : FAULT_KEY;
    } else if (strcmp(word, "--cache") == 0) {
        r->options.cache = argv[++*i];
    } else if (strcmp(word, "--child") == 0 && *i + 2 < argc) {
        r->child = argv[++*i];
        r->options.cache = argv[++*i];
    } else {
        return false;
    }
    return true;
}

static bool parse(struct request *r, int argc, char **argv)
{
    long long number = 0;
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        if (strcmp(word, "--dry") == 0) {
            r->options.dry = true;
        } else if (strcmp(word, "--quick") == 0) {
            r->options.quick = true;
        } else if (strcmp(word, "--verbose") == 0) {
            r->options.verbose = true;
        } else if (strcmp(word, "--strict") == 0) {
            r->options.strict = true;
        } else if (strcmp(word, "--random") == 0 && take_number(argv, argc, &i, &number)) {
            r->random = number;
        } else if (strcmp(word, "--seed") == 0 && take_number(argv, argc, &i, &number)) {
            r->options.seed = (uint64_t)number;
        } else if (strcmp(word, "--threads") == 0 && take_number(argv, argc, &i, &number)) {
            r->options.threads = (int)number;
        } else if (!parse_text(r, argc, argv, &i)) {
            return false;
        }
    }
    return true;
}

/* Does the word up to `end` choose the group: a part of its name, or =NAME? */
static bool chooses(const char *word, const char *end, const char *group)
{
    char part[64];
    (void)snprintf(part, sizeof part, "%.*s", (int)(end - word), word);
    return part[0] == '=' ? strcmp(group, part + 1) == 0 : strstr(group, part) != NULL;
}

static bool wanted(const struct options *options, const char *group)
{
    const char *word = options->only;
    for (; word && *word; word += strspn(word, ",")) {
        const char *end = word + strcspn(word, ",");
        if (chooses(word, end, group)) {
            return true;
        }
        word = end;
    }
    return !options->only;
}

/* References of lists have none; packed cases are not compiled in a dry run but for one in four. */
static bool sees_faults(const char *group)
{
    return !strstr(group, "lists") && !strstr(group, "packed");
}

/* Whether a bound catches a fault is told by a part of a long list, in which specs take other sizes in turn.
 */
static void thin_out(struct case_list *list)
{
    enum { LONG = 10, EVERY = 5 };
    int n = 0;
    for (int i = 0; i < list->n && list->n > LONG; i += EVERY) {
        list->item[n++] = list->item[i];
    }
    list->n = n > 0 ? n : list->n;
}

/* The commit draws: LATHE_TEST_DRAW, as .ci/run sets it; else the seed does. */
static uint64_t draw_of(uint64_t seed)
{
    const char *text = getenv("LATHE_TEST_DRAW");
    uint64_t draw = text && *text ? 0 : seed;
    while (text && *text) {
        draw = 31 * draw + (unsigned char)*text++;
    }
    return draw % 1000;
}

static void run_groups(const struct bench *bench, const struct request *request, struct totals *totals)
{
    const struct options *options = &request->options;
    struct case_list list;
    memset(&list, 0, sizeof list);
    for (int i = 0; matrix_groups[i]; i++) {
        if (wanted(options, matrix_groups[i]) && (!options->fault || sees_faults(matrix_groups[i]))) {
            cases_of_group(&list, matrix_groups[i], options);
            if (options->fault) {
                thin_out(&list);
            }
            group_run(matrix_groups[i], &list, bench, options, totals);
        }
    }
    if (wanted(options, "random") && !options->fault) {
        cases_random(&list, (int)request->random, options->seed);
        group_run("random", &list, bench, options, totals);
    }
    if (wanted(options, "batch") && !options->fault) {
        batch_run(bench, options, totals);
    }
    if (wanted(options, "nsa") && !options->fault) {
        nsa_run(bench, totals);
    }
    if (wanted(options, "ranks") && !options->fault) {
        ranks_run(bench, options, totals);
    }
    if (wanted(options, "system") && !options->fault) {
        system_run(bench, options, totals);
    }
}

static lathe_status parse_spec(lathe_spec **spec, const char *name, const char *text, lathe_error *err)
{
    return lathe_spec_parse(spec, name, text, strlen(text), err);
}

/* plain: what references are computed of, where that is another spec. */
static bool load_specs(lathe_spec **spec, lathe_spec **plain, lathe_error *err)
{
    bool good = spec_row_count <= MAX_SPECS;
    if (!good) {
        (void)snprintf(err->text, sizeof err->text, "specs.c has %d specs, and main.c room for %d",
                       spec_row_count, (int)MAX_SPECS);
    }
    for (int i = 0; i < spec_row_count && good; i++) {
        const char *name = spec_rows[i].name;
        if (mask_text(name)) {
            good = parse_spec(&spec[i], name, mask_text(name), err) == LATHE_OK &&
                   parse_spec(&plain[i], name, mask_reference(name), err) == LATHE_OK;
        } else {
            good = spec_open(&spec[i], &spec_rows[i], err) == LATHE_OK;
        }
    }
    return good;
}

static int finish(const struct totals *totals, const struct options *options)
{
    if (totals->bars_missed) {
        (void)printf("%d time bars missed%s\n", totals->bars_missed,
                     options->strict ? "" : " (not counted as failures)");
    }
    (void)printf("%d passed, %d failed\n", totals->passed, totals->failed);
    if (options->fault) {
        (void)printf("%d groups did not see the fault\n", totals->blind);
        return totals->blind || totals->failed == 0 ? EXIT_FAILED : EXIT_SUCCESS;
    }
    return totals->failed || totals->passed == 0 ? EXIT_FAILED : EXIT_SUCCESS;
}

static int run_all(const struct device *device, const struct device *host, const struct request *request)
{
    struct bench bench;
    struct totals totals = {0, 0, 0, 0};
    lathe_spec *spec[MAX_SPECS] = {NULL};
    lathe_spec *plain[MAX_SPECS] = {NULL};
    lathe_error err = {0};
    char folder[256] = "";
    const char *cache = request->options.cache;
    memset(&bench, 0, sizeof bench);
    if (!cache && folder_make(folder, sizeof folder)) {
        cache = folder;
    }
    const bool good = side_open(&bench.tested, device, cache ? cache : "", NULL, NULL, &err) &&
                      side_open_with(&bench.strict, device, cache ? cache : "", NULL, NULL, true, &err) &&
                      side_open(&bench.reference, host, "", NULL, NULL, &err) &&
                      load_specs(spec, plain, &err);
    bench.spec = spec;
    bench.plain = plain;
    bench.fault = request->options.fault;
    bench.verbose = request->options.verbose;
    bench.wished = getenv("LATHE_TEMPLATE") != NULL;
    if (good) {
        (void)printf("testing on %s with %d threads\n", lathe_ctx_device_name(bench.tested.ctx),
                     request->options.threads);
        run_groups(&bench, request, &totals);
    } else {
        (void)printf("FAILED before the first test: %s\n", err.text);
        totals.failed++;
    }
    for (int i = 0; i < spec_row_count && i < MAX_SPECS; i++) {
        lathe_spec_destroy(spec[i]);
        lathe_spec_destroy(plain[i]);
    }
    side_close(&bench.tested);
    side_close(&bench.strict);
    side_close(&bench.reference);
    if (*folder) {
        folder_remove(folder);
    }
    return finish(&totals, &request->options);
}

static int run_child(const char *what, const char *cache)
{
    if (strcmp(what, "compile") == 0) {
        return child_compile(cache);
    }
    if (strcmp(what, "cold") == 0) {
        return child_cold();
    }
    return strcmp(what, "first-call") == 0 ? child_first_call(cache) : EXIT_USAGE;
}

int main(int argc, char **argv)
{
    struct request request;
    char self[512] = "";
    char why[256] = "";
    memset(&request, 0, sizeof request);
    request.random = -1;
    request.options.seed = 1;
    (void)setvbuf(stdout, NULL, _IOLBF, 0); /* a case that ends the process has the lines of all before it */
    if (!parse(&request, argc, argv)) {
        (void)fputs(USAGE, stderr);
        return EXIT_USAGE;
    }
    if (request.child) {
        return run_child(request.child, request.options.cache);
    }
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    request.options.self = length > 0 ? self : argv[0];
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    request.options.threads =
        request.options.threads ? request.options.threads : (int)(cores > 16 ? 16 : cores);
    const bool part = request.options.quick || request.options.dry;
    request.options.draw = draw_of(request.options.seed);
    request.random = request.random >= 0 ? request.random : (part ? 40 : 400);
    struct device *device = device_open(request.options.dry, why, sizeof why);
    struct device *host = device_open(true, why, sizeof why);
    int code = EXIT_SKIPPED;
    if (device && host) {
        code = run_all(device, host, &request);
    } else {
        (void)printf("skipped: %s\n", why);
    }
    device_close(device);
    device_close(host);
    return code;
}
