/*
 * run_data.c: the tensors of `lathe run`. In: options. Out: host arrays, from .npy files, from --set, or
 * random from the seed; outputs are filled with NaN, so that what a kernel does not write shows. Floats
 * are drawn from a table of 65536 normal values, converted once. run_free frees everything.
 */
#include "gen/tool/run.h"
#include "gen/tool/npy.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NORMALS = 65536, RANDOM_IDS = 4 };

uint64_t random_next(struct random *r)
{
    uint64_t z = r->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static double uniform(struct random *r) /* in (0, 1] */
{
    return ((double)(random_next(r) >> 11) + 1.0) * 0x1p-53;
}

static double normal(struct random *r)
{
    const double radius = sqrt(-2.0 * log(uniform(r)));
    return radius * cos(6.283185307179586 * uniform(r));
}

/* ---- problem ------------------------------------------------------------------------------------ */

static bool is_input_role(const struct sig_arg *a)
{
    return a->role == ROLE_IN || a->role == ROLE_INPUT;
}

/* No run has a workspace of an earlier one. */
static bool is_scalar_role(const struct sig_arg *a)
{
    return lathe__is_host_value(a) && a->role != ROLE_MASK_KEPT;
}

/* How many keys and heads there are in all is a size of the problem. */
static bool is_set_role(const struct sig_arg *a)
{
    return is_scalar_role(a) && a->role != ROLE_TOTAL;
}

static bool is_output_role(const struct sig_arg *a)
{
    return a->role == ROLE_OUT || a->role == ROLE_OUT_OPTIONAL;
}

static bool check_names(const struct signature *sig, const char *option, const struct name_values *list,
                        bool (*fits)(const struct sig_arg *a))
{
    for (int i = 0; i < list->n; i++) {
        bool known = false;
        for (int k = 0; k < sig->n_args; k++)
            known = known || (fits(&sig->arg[k]) && strcmp(sig->arg[k].name, list->item[i].name) == 0);
        if (known)
            continue;
        fprintf(stderr, "lathe: %s: unknown name '%s'; known:", option, list->item[i].name);
        int n = 0;
        for (int k = 0; k < sig->n_args; k++) {
            if (fits(&sig->arg[k]) && ++n)
                fprintf(stderr, " %s", sig->arg[k].name);
        }
        fputs(n ? "\n" : " none\n", stderr);
        return false;
    }
    return true;
}

static bool is_file(const char *value)
{
    return value && strcmp(value, "random") != 0;
}

/* Are shapes of files those of pools? */
static bool has_pages(const struct run *run, const char *text)
{
    bool named = tool_names_size(text, "pages") || tool_names_size(text, "page") ||
                 tool_names_size(text, "most") || tool_names_size(text, "pool");
    return run->sig.paged_by && (named || is_file(tool_find_value(&run->o->input, "pages")));
}

static lathe_status add_sizes(struct run *run, const struct sig_arg *a, const char *path,
                              const struct npy *array, struct text_buf *text, lathe_error *err)
{
    const int skip = a->ndim - array->ndim;
    const char *const so_far = text->data ? text->data : "";
    const struct problem here = {.paged = has_pages(run, so_far),
                                 .cut_keys = tool_names_size(so_far, "len_kv"),
                                 .cut_heads = tool_names_size(so_far, "n_h")};
    for (int i = skip < 0 ? a->ndim : skip; i < a->ndim; i++) {
        const struct sig_dim dim = lathe__dim_here(&here, a->dim[i]);
        const char *name = sym_name(&run->sig, dim.sym);
        if (dim.literal > 0 || tool_names_size(text->data ? text->data : "", name))
            continue;
        if (array->shape[i - skip] < dim.plus)
            return lathe__fail(err, LATHE_ARG,
                               "argument '%s': expected %d or more along dim %d, given %" PRId64 " in %s",
                               a->name, dim.plus, i - skip, array->shape[i - skip], path);
        text_add(text, "%s%s=%" PRId64, text->size ? "," : "", name,
                 (array->shape[i - skip] - dim.plus) / lathe__times(dim));
    }
    return LATHE_OK;
}

typedef lathe_status problem_reader(const struct ir *ir, const struct signature *sig, const char *text,
                                    struct problem *out, lathe_error *err);

/* Sizes that --problem leaves open are those of the files. */
static int read_problem(struct run *run, problem_reader *parse)
{
    struct text_buf text = {0};
    lathe_error err = {0};
    lathe_status status = LATHE_OK;
    if (run->o->problem)
        text_add(&text, "%s", run->o->problem);
    for (int i = 0; i < run->sig.n_args && status == LATHE_OK; i++) {
        const struct sig_arg *a = &run->sig.arg[i];
        const char *value = tool_find_value(&run->o->input, a->name);
        struct npy array;
        if (!is_file(value))
            continue;
        const bool whole = a->dtype == LATHE_I32 || a->dtype == LATHE_U8;
        status = npy_read(&array, value, whole ? (lathe_dtype)a->dtype : LATHE_BF16, &err);
        if (status != LATHE_OK && a->narrow) /* its dims count, whatever its bits are of */
            status = npy_read(&array, value, LATHE_F8_E4M3, &err);
        if (status == LATHE_OK)
            status = add_sizes(run, a, value, &array, &text, &err);
        npy_free(&array);
    }
    if (status == LATHE_OK)
        status = parse(run->ir, &run->sig, text.data, &run->problem, &err);
    text_free(&text);
    if (status == LATHE_OK && (run->problem.unaligned || run->problem.folded)) {
        tool_complain("problem: this command makes tensors whose rows are aligned and apart; unaligned and "
                      "folded are for gen, compile, explain and aot");
        return CODE_USAGE;
    }
    return status == LATHE_OK ? CODE_OK : complain_error(&err);
}

/* ---- tensors ------------------------------------------------------------------------------------ */

static struct run_tensor *add_tensor(struct run *run, int sig)
{
    const struct sig_arg *a = &run->sig.arg[sig];
    struct run_tensor *t = &run->tensor[run->n++];
    *t = (struct run_tensor){.sig = sig, .count = 1};
    int skip = 0; /* leading dims that may be left out and are 1 */
    while (a->leading_optional && skip + 1 < a->ndim && run->problem.dim[a->dim[skip].sym] == 1)
        skip++;
    for (int i = skip; i < a->ndim; i++) {
        t->shape[i - skip] = lathe__dim_value(&run->problem, a->dim[i]);
        t->count *= t->shape[i - skip];
    }
    t->arg =
        (lathe_arg){a->name, NULL, (lathe_dtype)run->problem.arg_dtype[sig], a->ndim - skip, t->shape, NULL};
    t->bytes = (size_t)t->count * lathe_dtype_size(t->arg.dtype);
    return t;
}

static int allocate(struct run_tensor *t)
{
    t->host = malloc(t->bytes ? t->bytes : 1);
    t->arg.data = t->host;
    if (t->host)
        return CODE_OK;
    tool_complain("argument '%s': out of memory for %zu bytes", t->arg.name, t->bytes);
    return CODE_ENVIRONMENT;
}

int run_fill_floats(struct run_tensor *t, struct random *r)
{
    const size_t size = lathe_dtype_size(t->arg.dtype);
    char *table = malloc(NORMALS * size);
    char *to = t->host;
    if (!table) {
        tool_complain("out of memory");
        return CODE_ENVIRONMENT;
    }
    for (int64_t i = 0; i < NORMALS; i++)
        dtype_store(t->arg.dtype, table, i, normal(r));
    uint64_t bits = 0;
    for (int64_t i = 0; i < t->count; i++, bits >>= 16) {
        if (i % 4 == 0)
            bits = random_next(r);
        memcpy(to + (size_t)i * size, table + (bits % NORMALS) * size, size);
    }
    free(table);
    return CODE_OK;
}

/* Ids 0, 0, 0, 1, 1, ... that rise along the last dim, as those of documents in a batch do. */
static void fill_ids(struct run_tensor *t, struct random *r)
{
    int32_t *to = t->host;
    const int64_t length = t->arg.ndim ? t->shape[t->arg.ndim - 1] : 1;
    int32_t id = 0;
    for (int64_t i = 0; i < t->count; i++) {
        if (i % length == 0)
            id = 0;
        else if (id + 1 < RANDOM_IDS && random_next(r) % (uint64_t)length < RANDOM_IDS)
            id++;
        to[i] = id;
    }
}

static double unit_of(void *random)
{
    return uniform(random) * (1 - 0x1p-53); /* below 1 */
}

/* The input that an argument is; NULL: it is none. */
static const struct input *input_of(const struct run *run, const struct run_tensor *t)
{
    for (int i = 0; i < run->ir->n_inputs; i++)
        if (strcmp(run->ir->input[i].name, t->arg.name) == 0)
            return &run->ir->input[i];
    return NULL;
}

/* States as an online function may leave them, maxima and sums, and a live pair in three parts of four. */
static bool fill_row_states(const struct run *run, struct run_tensor *t, struct random *r)
{
    const int64_t width = t->shape[t->arg.ndim - 1];
    if (!run->sig.combine || strcmp(t->arg.name, "part_rows") != 0)
        return false;
    for (int64_t i = 0; i < t->count; i++) {
        const bool flag = i % width == width - 1;
        const double value = flag ? (double)(random_next(r) % 4 != 0) : 0.5 + fabs(normal(r));
        dtype_store(t->arg.dtype, t->host, i, value);
    }
    return true;
}

/* An argument stands behind those that say what may be in it. */
static bool fill_integers(const struct run *run, struct run_tensor *t, struct random *r)
{
    const struct run_tensor *own = run_find(run, "cu_kv");
    const struct run_tensor *keys = own ? own : run_find(run, "cu_q");
    const int64_t *dim = run->problem.dim;
    return sequences_fill(&run->sig, dim, &t->arg, keys ? &keys->arg : NULL, unit_of, r) ||
           slots_fill(run->ir, dim, &t->arg, unit_of, r);
}

static int fill_random(const struct run *run, struct run_tensor *t, struct random *r)
{
    const struct input *in = input_of(run, t);
    int64_t dim[SYM_COUNT];
    lathe__dims_of_all(&run->problem, dim);
    if (in && input_fill(in, dim, &t->arg, unit_of, r))
        return CODE_OK;
    if (fill_row_states(run, t, r) || fill_integers(run, t, r))
        return CODE_OK;
    if (t->arg.dtype == LATHE_I32)
        fill_ids(t, r);
    else if (t->arg.dtype == LATHE_U8)
        for (int64_t i = 0; i < t->count; i++)
            ((uint8_t *)t->host)[i] = random_next(r) % 8 != 0;
    else
        return run_fill_floats(t, r);
    return CODE_OK;
}

/* Right-aligned, dims that are left out being 1. */
static bool same_shape(const struct run_tensor *t, const struct npy *array)
{
    for (int i = 1; i <= t->arg.ndim || i <= array->ndim; i++) {
        const int64_t wanted = i <= t->arg.ndim ? t->shape[t->arg.ndim - i] : 1;
        const int64_t given = i <= array->ndim ? array->shape[array->ndim - i] : 1;
        if (wanted != given)
            return false;
    }
    return true;
}

static void add_ints(struct text_buf *text, const int64_t *value, int n)
{
    text_add(text, "[");
    for (int i = 0; i < n; i++)
        text_add(text, "%s%" PRId64, i ? "," : "", value[i]);
    text_add(text, "]");
}

static int wrong_shape(const struct run_tensor *t, const struct npy *array, const char *path)
{
    struct text_buf wanted = {0};
    struct text_buf given = {0};
    add_ints(&wanted, t->shape, t->arg.ndim);
    add_ints(&given, array->shape, array->ndim);
    tool_complain("argument '%s': expected shape %s by the problem, given %s in %s", t->arg.name,
                  wanted.data ? wanted.data : "", given.data ? given.data : "", path);
    text_free(&wanted);
    text_free(&given);
    return CODE_USAGE;
}

static int read_tensor(struct run_tensor *t, const char *path)
{
    struct npy array;
    lathe_error err = {0};
    if (npy_read(&array, path, t->arg.dtype, &err) != LATHE_OK)
        return complain_error(&err);
    t->host = array.data;
    t->arg.data = array.data;
    return same_shape(t, &array) ? CODE_OK : wrong_shape(t, &array, path);
}

/* A size of all keys or heads, which the problem has; and where those that are here begin. */
static int make_place(struct run *run, int sig)
{
    const struct sig_arg *a = &run->sig.arg[sig];
    const char *text = tool_find_value(&run->o->set, a->name);
    const char *size = sym_name(&run->sig, a->dim[0].sym);
    double value = (double)run->problem.dim[a->dim[0].sym];
    if (!arg_in(run->problem.present, sig)) {
        if (text)
            tool_complain(
                "--set %s: this problem has all of them; say how many there are by %s=N in --problem",
                a->name, size);
        return text ? CODE_USAGE : CODE_OK;
    }
    if (a->role == ROLE_START && !text) {
        tool_complain("the problem has a part of %s=%" PRId64 "; say where it begins by --set %s=VALUE", size,
                      run->problem.dim[a->dim[0].sym], a->name);
        return CODE_USAGE;
    }
    if (a->role == ROLE_START && !tool_scalar(a->name, text, LATHE_I32, &value))
        return CODE_USAGE;
    struct run_tensor *t = add_tensor(run, sig);
    const int code = allocate(t);
    if (code == CODE_OK)
        dtype_store(LATHE_I32, t->host, 0, value);
    return code;
}

static int make_scalar(struct run *run, int sig, struct random *r)
{
    const struct sig_arg *a = &run->sig.arg[sig];
    if (a->role == ROLE_START || a->role == ROLE_TOTAL)
        return make_place(run, sig);
    const char *text = tool_find_value(&run->o->set, a->name);
    const lathe_dtype dtype = (lathe_dtype)run->problem.arg_dtype[sig];
    double value = 0;
    if (!text && a->optional)
        return CODE_OK;
    if (text && !tool_scalar(a->name, text, dtype, &value))
        return CODE_USAGE;
    if (!text)
        value = dtype == LATHE_I32 || dtype == LATHE_U8 ? (double)(random_next(r) % RANDOM_IDS) : normal(r);
    struct run_tensor *t = add_tensor(run, sig);
    const struct input *in = input_of(run, t);
    const int code = allocate(t);
    if (code == CODE_OK && !text && in && input_has_range(in))
        fill_random(run, t, r);
    else if (code == CODE_OK)
        dtype_store(dtype, t->host, 0, value);
    if (code == CODE_OK && !text)
        fprintf(stderr, "lathe: scalar '%s' is random: %g; choose it with --set %s=VALUE\n", a->name,
                dtype_load(dtype, t->host, 0), a->name);
    return code;
}

static int make_input(struct run *run, int sig, struct random *r)
{
    const struct sig_arg *a = &run->sig.arg[sig];
    const char *value = tool_find_value(&run->o->input, a->name);
    if (!value && a->optional)
        return CODE_OK;
    if (!arg_in(run->problem.present, sig)) {
        if (!value)
            return CODE_OK;
        tool_complain("--input %s: its sizes are not known; add them to --problem", a->name);
        return CODE_USAGE;
    }
    struct run_tensor *t = add_tensor(run, sig);
    if (is_file(value))
        return read_tensor(t, value);
    const int code = allocate(t);
    return code == CODE_OK ? fill_random(run, t, r) : code;
}

static int complain_left_out(const char *name)
{
    tool_complain("--input %s: the problem leaves it out; bring it in by %s=DTYPE in --problem", name, name);
    return CODE_USAGE;
}

/* An optional input of the operator itself: in the backward pass a result of the forward pass or, where it
   is no such thing, the gradient of one. */
static int make_result(struct run *run, int sig, struct random *r)
{
    const char *value = tool_find_value(&run->o->input, run->sig.arg[sig].name);
    struct signature forward;
    if (!arg_in(run->problem.present, sig))
        return value ? complain_left_out(run->sig.arg[sig].name) : CODE_OK;
    signature_make(run->ir, LATHE_FORWARD, &forward);
    struct run_tensor *t = add_tensor(run, sig);
    const int result = lathe__arg_find(&forward, run->sig.arg[sig].name,
                                       0); /* or an operand that the gradient does not read */
    t->is_result = result >= 0 && is_output_role(&forward.arg[result]);
    t->from_forward = !value && t->is_result;
    if (t->is_result && run->problem.dtype[DTYPE_USUAL] == LATHE_F64 && t->arg.dtype == LATHE_F32) {
        t->arg.dtype = LATHE_F64; /* weights are made of it: f32 would be all that is left of them */
        t->bytes = (size_t)t->count * lathe_dtype_size(LATHE_F64);
    }
    if (is_file(value))
        return read_tensor(t, value);
    const int code = allocate(t);
    return code == CODE_OK && !t->from_forward ? fill_random(run, t, r) : code;
}

/* The forward pass gives all of its results at once. */
static int check_results(const struct run *run)
{
    const struct run_tensor *computed = NULL;
    const struct run_tensor *given = NULL;
    for (int i = 0; i < run->n; i++) {
        const struct run_tensor *t = &run->tensor[i];
        if (t->is_result)
            *(t->from_forward ? &computed : &given) = t;
    }
    if (!computed || !given)
        return CODE_OK;
    tool_complain("--input %s: expected %s to be given too, or to be left out by %s=none in --problem",
                  run->sig.arg[given->sig].name, run->sig.arg[computed->sig].name,
                  run->sig.arg[computed->sig].name);
    return CODE_USAGE;
}

/* An optional input that is left out has no gradient: kernels would add up all of it in the one number that
 * is read for it. */
static bool is_of_absent_input(const struct run *run, const char *gradient)
{
    for (int i = 0; i < run->sig.n_args; i++) {
        const struct sig_arg *a = &run->sig.arg[i];
        if (a->role == ROLE_INPUT && a->optional && gradient[0] == 'd' && strcmp(gradient + 1, a->name) == 0)
            return run_find(run, a->name) == NULL;
    }
    return false;
}

static int make_output(struct run *run, int sig, bool outputs)
{
    const struct sig_arg *a = &run->sig.arg[sig];
    if (run_is_backward(run) && !tool_find_value(&run->o->output, a->name) &&
        is_of_absent_input(run, a->name))
        return CODE_OK;
    const bool present = arg_in(run->problem.present, sig);
    const bool instead = a->rare && a->beside; /* of what the problem then leaves out */
    const bool wanted =
        present && (run_is_backward(run) || outputs || instead || tool_find_value(&run->o->output, a->name));
    if (a->unless && !present && !tool_find_value(&run->o->output, a->name))
        return CODE_OK;
    if (a->role == ROLE_OUT_OPTIONAL && !wanted && !tool_find_value(&run->o->output, a->name))
        return CODE_OK;
    if (!wanted && (a->role == ROLE_OUT_OPTIONAL || (a->unless && !present))) {
        tool_complain("--output %s: the problem leaves it out (%s=none)", a->name, a->name);
        return CODE_USAGE;
    }
    struct run_tensor *t = add_tensor(run, sig);
    const int code = allocate(t);
    if (code == CODE_OK)
        memset(t->host, 0xff, t->bytes); /* NaN in every float type */
    return code;
}

static int make_tensors(struct run *run, bool outputs)
{
    int code = CODE_OK;
    for (int i = 0; i < run->sig.n_args && code == CODE_OK; i++) {
        const struct sig_arg *a = &run->sig.arg[i];
        /* a stream of its own: a tensor does not change when another one comes from a file */
        struct random r = {run->o->seed * UINT64_C(0x100000001b3) + (uint64_t)i};
        if (a->role == ROLE_MASK_KEPT || (run->inputs_alone && !is_scalar_role(a) && a->role != ROLE_INPUT))
            continue;
        if (is_scalar_role(a))
            code = make_scalar(run, i, &r);
        else if (a->role == ROLE_IN && a->optional)
            code = make_result(run, i, &r);
        else if (is_input_role(a))
            code = make_input(run, i, &r);
        else
            code = make_output(run, i, outputs);
    }
    return code;
}

/* What is given, against what the spec says of it: kernels do not look. */
static int check_ranges(const struct run *run, lathe_error *err)
{
    int64_t dim[SYM_COUNT];
    lathe__dims_of_all(&run->problem, dim);
    for (int i = 0; i < run->ir->n_inputs; i++) {
        const struct run_tensor *t = run_find(run, run->ir->input[i].name);
        const struct run_tensor *many = run_find(run, run->ir->input[i].range.sorted_by);
        if (t && input_range_check(run->ir, i, &t->arg, many ? &many->arg : NULL, dim, err) != LATHE_OK)
            return complain_error(err);
    }
    return CODE_OK;
}

bool run_set_known(const struct signature *sig, const struct name_values *set)
{
    return check_names(sig, "--set", set, is_set_role);
}

static bool names_are_known(const struct run *run)
{
    const struct options *o = run->o;
    return run_set_known(&run->sig, &o->set) && check_names(&run->sig, "--input", &o->input, is_input_role) &&
           check_names(&run->sig, "--output", &o->output, is_output_role);
}

int run_prepare(struct run *run, bool outputs)
{
    lathe_arg args[MAX_ARGS];
    struct problem problem;
    lathe_error err = {0};
    signature_make(run->ir, run->o->pass, &run->sig);
    for (int i = 0; i < run->sig.n_args; i++)
        if (run->sig.arg[i].list) {
            tool_complain(
                "%s takes lists of tensors (arrays of pointers), which lathe run does not make; call it "
                "from C",
                run->ir->name);
            return CODE_USAGE;
        }
    if (!names_are_known(run))
        return CODE_USAGE;
    int code = read_problem(run, problem_parse_of);
    if (code == CODE_OK)
        code = make_tensors(run, outputs);
    if (code == CODE_OK)
        code = check_results(run);
    if (code != CODE_OK)
        return code;
    if (run->inputs_alone)
        return check_ranges(run, &err);
    run_args(run, args);
    if (problem_from_args(&run->sig, args, run->n, true, &problem, &err) != LATHE_OK)
        return complain_error(&err);
    return check_ranges(run, &err);
}

/* A tensor from a file; dims that it leaves out are 1. */
static int take_file(struct run *run, int sig, const char *path)
{
    const struct sig_arg *a = &run->sig.arg[sig];
    for (int i = 0; i < a->ndim; i++) {
        const struct sig_dim dim = lathe__dim_here(&run->problem, a->dim[i]);
        if (dim.literal == 0 && run->problem.dim[dim.sym] < 0)
            run->problem.dim[dim.sym] = 1;
    }
    return read_tensor(add_tensor(run, sig), path);
}

int run_prepare_given(struct run *run)
{
    lathe_error err = {0};
    struct random unused = {0};
    signature_make(run->ir, LATHE_FORWARD, &run->sig);
    int code = names_are_known(run) ? read_problem(run, problem_named_of) : CODE_USAGE;
    for (int i = 0; i < run->sig.n_args && code == CODE_OK; i++) {
        const struct sig_arg *a = &run->sig.arg[i];
        const char *path = tool_find_value(&run->o->input, a->name);
        if (is_scalar_role(a) && tool_find_value(&run->o->set, a->name))
            code = make_scalar(run, i, &unused);
        else if (is_file(path))
            code = take_file(run, i, path);
    }
    return code == CODE_OK ? check_ranges(run, &err) : code;
}

void run_free(struct run *run)
{
    for (int i = 0; i < run->n; i++)
        free(run->tensor[i].host);
    run->n = 0;
    free(run->seed_row);
    run->seed_row = NULL;
}

const struct run_tensor *run_find(const struct run *run, const char *name)
{
    for (int i = 0; i < run->n; i++) {
        if (strcmp(run->sig.arg[run->tensor[i].sig].name, name) == 0)
            return &run->tensor[i];
    }
    return NULL;
}

bool run_is_output(const struct run *run, const struct run_tensor *t)
{
    return is_output_role(&run->sig.arg[t->sig]);
}

/* Shapes are pointed at anew: the run may have moved since its tensors were made. */
void run_args(const struct run *run, lathe_arg out[MAX_ARGS])
{
    for (int i = 0; i < run->n; i++) {
        out[i] = run->tensor[i].arg;
        out[i].name = run->sig.arg[run->tensor[i].sig].name;
        out[i].shape = run->tensor[i].shape;
    }
}

int run_write(const struct run *run)
{
    lathe_error err = {0};
    for (int i = 0; i < run->o->output.n; i++) {
        const struct name_value *pair = &run->o->output.item[i];
        const struct run_tensor *t = run_find(run, pair->name);
        if (t && npy_write(pair->value, t->arg.dtype, t->arg.ndim, t->shape, t->host, &err) != LATHE_OK)
            return complain_error(&err);
    }
    return CODE_OK;
}
