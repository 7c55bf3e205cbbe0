/*
 * aot.c: the entry of libraries made by `lathe aot`. In: a kernel set that such a library holds, its struct
 * of arguments; out: work on the caller's stream, by the very functions that the JIT launches with. Code is
 * loaded at the first call in a CUDA context and kept: its list hangs in the library's own data. This file
 * has the project's one piece of global state: the driver, opened once, and the lock of loading.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/aot/aot.h"
#include "runtime/launch/launch.h"
#include "runtime/recipe/aot.h"

/* ---- which variant -------------------------------------------------------------------------------- */

/* How well a piece of code suits a device: exact, then the newest of its generation, then PTX; 0: not at all.
 */
static int arch_rank(const struct aot_arch *a, int sm)
{
    if (a->ptx)
        return a->suffix == 0 && a->sm <= sm ? 1000 + a->sm : 0;
    if (a->sm == sm)
        return 3000 + (a->suffix == 'a' ? 2 : a->suffix == 'f' ? 1 : 0);
    return a->suffix != 'a' && a->sm < sm && a->sm / 10 == sm / 10 ? 2000 + a->sm : 0;
}

static bool fits_shared_memory(const struct source *source, int bytes)
{
    for (int i = 0; i < source->n_launches; i++)
        if (source->launch[i].smem_bytes > bytes)
            return false;
    return true;
}

const struct aot_variant *lathe__aot_pick_variant(const struct aot_kernel *kernel,
                                                  const struct device *device)
{
    const struct aot_variant *best = NULL;
    int best_rank = 0;
    for (int i = 0; i < kernel->n_variants; i++) {
        const struct aot_variant *v = &kernel->variant[i];
        if (!fits_shared_memory(v->source, device->smem_bytes))
            continue;
        for (int k = 0; k < v->n_archs; k++) {
            const int rank = arch_rank(&v->arch[k], device->sm);
            if (rank > best_rank) {
                best_rank = rank;
                best = v;
            }
        }
    }
    return best;
}

/* ---- sentences ------------------------------------------------------------------------------------ */

/* An optional input with a dim of its own is left out unless the problem gives that dim a size. */
static bool free_dim_matters(const struct signature *sig, const struct problem *p, int sym)
{
    for (int i = 0; i < sig->n_args; i++)
        for (int d = 0; d < sig->arg[i].ndim && sig->arg[i].role == ROLE_INPUT; d++)
            if (sig->arg[i].optional && arg_in(p->present, i) && sig->arg[i].dim[d].literal == 0 &&
                sig->arg[i].dim[d].sym == sym)
                return true;
    return false;
}

static void say_set(struct phrase *out, const struct signature *sig, const char *what, uint64_t set)
{
    bool first = true;
    for (int i = 0; i < sig->n_args; i++) {
        if (!arg_in(set, i))
            continue;
        lathe__say(out, "%s%s%s%s", first ? "," : "+", first ? what : "", first ? "=" : "", sig->arg[i].name);
        first = false;
    }
}

/* How many keys or heads there are of which a call has a part: a line has sizes, beside those of the part. */
static void say_total(struct phrase *out, const struct signature *sig, const struct problem *p, int all)
{
    const int lengths = lathe__lengths(p);
    for (int i = 0; i < sig->n_sizes; i++) {
        const int sym = sig->size[i].sym;
        const bool of_keys = all == SYM_ALL_KV && sym == SYM_KV && !lengths;
        const bool of_heads =
            all == SYM_ALL_H && (sym == SYM_H || sym == SYM_H_KV) && !(lengths & LENGTHS_NINE_ROWS);
        if (of_keys || of_heads)
            lathe__say(out, ",%s=%lld", lathe__sym_text(sig, sym), (long long)p->dim[sym]);
    }
    lathe__say(out, ",%s=%lld", lathe__sym_text(sig, all), (long long)p->dim[all]);
}

void lathe__aot_problem_text(const struct signature *sig, const struct problem *p, struct phrase *out)
{
    lathe__say(out, "dtype=%s", lathe_dtype_text(p->dtype[DTYPE_USUAL]));
    for (int i = 0; i < sig->n_sizes; i++)
        if (sig->size[i].built && !(sig->size[i].same_as != SYM_ONE && lathe__size_follows(sig, p, i)))
            lathe__say(out, ",%s=%lld", lathe__sym_text(sig, sig->size[i].sym),
                       (long long)p->dim[sig->size[i].sym]);
    const bool few = lathe__lengths(p) & LENGTHS_FEW_QUERIES;
    const int64_t seqs = lathe__packed(sig, p);
    if (lathe__lengths(p) & LENGTHS_NINE_ROWS)
        lathe__say(out, ",h=%lld,h_kv=%lld,q=%lld", (long long)p->dim[SYM_H], (long long)p->dim[SYM_H_KV],
                   (long long)p->dim[SYM_Q]);
    else if (few)
        lathe__say(out, ",q=%lld", (long long)(seqs > 0 ? seqs : 1));
    if (few && seqs > 0)
        lathe__say(out, ",seqs=%lld", (long long)seqs);
    if (lathe__lengths(p) & LENGTHS_ODD_PAGES)
        lathe__say(out, ",page=%lld", (long long)p->dim[SYM_PAGE]);
    if (lathe__lengths(p))
        lathe__say(out, ",kv=%lld", (long long)p->dim[SYM_KV]);
    for (int i = 0; i < sig->n_args; i++) {
        const struct sig_arg *a = &sig->arg[i];
        if (a->role == ROLE_TOTAL && arg_in(p->present, i))
            say_total(out, sig, p, a->dim[0].sym);
        else if (a->presence_built && a->rare == arg_in(p->present, i))
            lathe__say(out, ",%s=%s", a->name,
                       a->rare ? lathe_dtype_text(lathe__rare_dtype(a, p->arg_dtype[i])) : "none");
        else if (lathe__names_dtype(sig, i) && p->arg_dtype[i] != p->dtype[DTYPE_USUAL])
            lathe__say(out, ",%s=%s", a->name, lathe_dtype_text((lathe_dtype)p->arg_dtype[i]));
    }
    for (int sym = SYM_FREE; sym < SYM_FREE + sig->n_free; sym++)
        if (free_dim_matters(sig, p, sym))
            lathe__say(out, ",%s=%lld", lathe__sym_text(sig, sym), (long long)p->dim[sym]);
    say_set(out, sig, "unaligned", p->unaligned);
    say_set(out, sig, "folded", p->folded);
    if (p->deterministic)
        lathe__say(out, ",deterministic=%s", lathe__determinism_text(p->deterministic));
}

static void say_archs(struct phrase *t, const struct aot_kernel *k)
{
    const char *comma = "";
    for (int i = 0; i < k->n_variants; i++)
        for (int a = 0; a < k->variant[i].n_archs; a++) {
            const struct aot_arch *arch = &k->variant[i].arch[a];
            const char suffix[2] = {arch->suffix, '\0'};
            lathe__say(t, "%s%ssm_%d%s", comma, arch->ptx ? "PTX for " : "", arch->sm, suffix);
            comma = ", ";
        }
}

static bool is_made(const struct sig_size *s, int64_t value)
{
    return s->step == 0 || (value >= s->least && value <= s->most && value % s->step == 0);
}

/* Nothing that `lathe aot` could add serves this, whatever the spec: says what GPUs take, and returns true.
 */
static bool say_never(struct phrase *out, const struct signature *sig, const struct problem *given)
{
    bool made = true;
    bool first = true;
    if (given->dtype[DTYPE_USUAL] == LATHE_F64) {
        lathe__say(out, "kernels of %s take f32, f16 and bf16", sig->kind);
        return true;
    }
    for (int i = 0; i < sig->n_sizes; i++)
        made &= is_made(&sig->size[i], given->dim[sig->size[i].sym]);
    for (int i = 0; i < sig->n_sizes && !made; i++) {
        const struct sig_size *s = &sig->size[i];
        if (s->step == 0)
            continue;
        if (first)
            lathe__say(out, "kernels of %s take ", sig->kind);
        lathe__say(out, "%s%s from %d to %d in steps of %d", first ? "" : ", ", lathe__sym_text(sig, s->sym),
                   s->least, s->most, s->step);
        first = false;
    }
    return !made;
}

static lathe_status no_kernel(const lathe_kernel_set *set, const struct problem *given, lathe_error *err)
{
    struct phrase wanted = {{0}, 0};
    struct phrase held = {{0}, 0};
    struct phrase never = {{0}, 0};
    lathe__aot_problem_text(set->sig, given, &wanted);
    for (int i = 0; i < set->n_kernels; i++) {
        lathe__say(&held, "%s", i ? "; " : "");
        lathe__aot_problem_text(set->sig, set->kernel[i].built, &held);
    }
    if (say_never(&never, set->sig, given))
        return lathe__fail(err, LATHE_UNSUPPORTED,
                           "%s: lib%s has no kernel for %s, and none can be made: %s; it holds %s",
                           set->function, set->library, wanted.text, never.text, held.text);
    return lathe__fail(err, LATHE_UNSUPPORTED,
                       "%s: lib%s has no kernel for %s; `%s%s --problem %s` would add it; it holds %s",
                       set->function, set->library, wanted.text, set->command, set->options, wanted.text,
                       held.text);
}

static lathe_status no_variant(const lathe_kernel_set *set, const struct aot_kernel *kernel,
                               const struct device *device, lathe_error *err)
{
    struct phrase held = {{0}, 0};
    say_archs(&held, kernel);
    return lathe__fail(
        err, LATHE_UNSUPPORTED,
        "%s: lib%s has code for %s, none of which this device runs (compute capability %d.%d, %d "
        "bytes of shared memory for a block); `%s,%s%s` would add it",
        kernel->function, set->library, held.text, device->sm / 10, device->sm % 10, device->smem_bytes,
        set->command, device->arch, set->options);
}

/* ---- the list ------------------------------------------------------------------------------------- */

int lathe_set_kernel_at(const lathe_kernel_set *set, int number, lathe_set_kernel *out)
{
    struct phrase problem = {{0}, 0};
    struct phrase archs = {{0}, 0};
    if (!set || !out || set->format != AOT_FORMAT || number < 0 || number >= set->n_kernels)
        return 0;
    const struct aot_kernel *k = &set->kernel[number];
    lathe__aot_problem_text(set->sig, k->built, &problem);
    say_archs(&archs, k);
    *out = (lathe_set_kernel){.library = set->library, .function = k->function, .pass = set->pass};
    snprintf(out->problem, sizeof out->problem, "%s", problem.text);
    snprintf(out->archs, sizeof out->archs, "%s", archs.text);
    return 1;
}

/* ---- the struct of arguments ---------------------------------------------------------------------- */

/* Scalars are read through pointers into the caller's struct. */
static bool field_arg(const struct sig_arg *a, const struct aot_field *field, const char *args,
                      lathe_arg *out)
{
    const char *at = args + field->offset;
    lathe_tensor tensor;
    int given = 1;
    *out = (lathe_arg){.name = a->name, .dtype = (lathe_dtype)a->dtype};
    switch ((enum aot_field_kind)field->kind) {
    case FIELD_TENSOR:
        memcpy(&tensor, at, sizeof tensor);
        *out = (lathe_arg){a->name, tensor.data, tensor.dtype, tensor.ndim, tensor.shape, tensor.strides};
        return tensor.dtype != LATHE_NONE;
    case FIELD_F32:
    case FIELD_I32:
        break;
    case FIELD_OPTIONAL_F32:
        memcpy(&given, at + offsetof(lathe_optional_f32, given), sizeof given);
        at += offsetof(lathe_optional_f32, value);
        break;
    case FIELD_OPTIONAL_I32:
        memcpy(&given, at + offsetof(lathe_optional_i32, given), sizeof given);
        at += offsetof(lathe_optional_i32, value);
        break;
    }
    out->data = (void *)(uintptr_t)at;
    return given != 0;
}

int lathe__aot_args(const lathe_kernel_set *set, const void *args, lathe_arg out[MAX_ARGS])
{
    int n = 0;
    for (int i = 0; i < set->sig->n_args; i++)
        if (field_arg(&set->sig->arg[i], &set->field[i], args, &out[n]))
            n++;
    return n;
}

/* ---- which kernel --------------------------------------------------------------------------------- */

static bool built_for(const struct signature *sig, const struct problem *built, const struct problem *given)
{
    return lathe__same_build(sig, built, given) && (given->unaligned & ~built->unaligned) == 0;
}

/* What a kernel for other lengths costs, the less the more it has in common with one for these. */
static int lengths_apart(const struct problem *built, const struct problem *given)
{
    const int differ = lathe__lengths(built) ^ lathe__lengths(given);
    return 2 * (differ & ~LENGTHS_NINE_ROWS) + (differ & LENGTHS_NINE_ROWS ? 1 : 0);
}

/* Where several serve, the one that knows what is folded, and then the one that expects the least: rows that
   are aligned need not be moved; last, the one for such lengths. A kernel that knows nothing
   of what is folded may serve; its launch refuses what it cannot read. The kernel's number; -1: none fits. */
static int find_kernel(const lathe_kernel_set *set, int wanted, const struct problem *given)
{
    struct problem as_built = *given;
    int best = -1;
    int most = 16 * (MAX_ARGS + 1) * (MAX_ARGS + 1);
    if (wanted != LATHE_ANY_KERNEL)
        return wanted;
    for (int i = 0; i < set->n_kernels; i++) {
        const struct problem *built = set->kernel[i].built;
        const int operands = __builtin_popcountll(built->folded ^ given->folded) * (MAX_ARGS + 1) +
                             __builtin_popcountll(built->unaligned);
        as_built.deterministic = built->deterministic;
        const int cost = 16 * operands + lengths_apart(built, &as_built);
        if (cost < most && built_for(set->sig, built, given)) {
            best = i;
            most = cost;
        }
    }
    return best;
}

static lathe_status no_args(lathe_error *err)
{
    return lathe__fail(err, LATHE_ARG, "args: expected a struct of arguments, given NULL");
}

static lathe_status check_set(const lathe_kernel_set *set, int kernel, lathe_error *err)
{
    lathe__error_clear(err);
    if (!set)
        return lathe__fail(err, LATHE_ARG, "set: expected an object, given NULL");
    if (set->format != AOT_FORMAT)
        return lathe__fail(
            err, LATHE_ARG,
            "this library was made by a lathe of format %u, and liblathe_rt %s reads format %u; make "
            "it again with the lathe that liblathe_rt is from",
            set->format, LATHE_VERSION, AOT_FORMAT);
    if (kernel < LATHE_ANY_KERNEL || kernel >= set->n_kernels)
        return lathe__fail(err, LATHE_ARG, "kernel: expected LATHE_ANY_KERNEL or a number below %d, given %d",
                           set->n_kernels, kernel);
    return LATHE_OK;
}

lathe_status lathe_set_workspace(size_t *out, const lathe_kernel_set *set, int kernel, const void *args,
                                 lathe_error *err)
{
    lathe_arg arg[MAX_ARGS];
    size_t offset[MAX_BUFFERS];
    struct problem given;
    if (!out)
        return lathe__fail(err, LATHE_ARG, "out: expected the address of a size_t, given NULL");
    *out = 0;
    if (!args)
        return no_args(err);
    TRY(check_set(set, kernel, err));
    TRY(lathe__problem_from_args(set->sig, arg, lathe__aot_args(set, args, arg), false, &given, err));
    const int number = find_kernel(set, kernel, &given);
    if (number < 0)
        return no_kernel(set, &given, err);
    const struct aot_kernel *k = &set->kernel[number];
    for (int i = 0; i < k->n_variants; i++) {
        const size_t bytes = lathe__workspace_layout(k->variant[i].source, &given, offset);
        *out = bytes > *out ? bytes : *out;
    }
    return LATHE_OK;
}

/* ---- loading -------------------------------------------------------------------------------------- */

struct aot_loaded { /* immutable once it is in the list */
    uint64_t context_id;
    const struct aot_variant *variant;
    struct module *module;
    struct aot_loaded *next;
};

struct place { /* where a call works */
    struct CUctx_st *context;
    uint64_t id; /* an address may come again for another context, a number does not */
};

static struct {
    pthread_mutex_t lock;
    _Atomic(struct driver *) driver;
    _Atomic(struct CUctx_st *) primary; /* of device 0, retained; NULL: not needed so far */
    lathe_log_fn *log;                  /* under the lock */
    void *log_user;
} process = {.lock = PTHREAD_MUTEX_INITIALIZER};

void lathe_aot_log(lathe_log_fn *log, void *user)
{
    pthread_mutex_lock(&process.lock);
    process.log = log;
    process.log_user = user;
    pthread_mutex_unlock(&process.lock);
}

/* Which piece of a variant a device takes is the driver's choice, and it takes none before PTX. */
static bool is_ptx_alone(const struct aot_variant *v, const struct device *device)
{
    for (int i = 0; i < v->n_archs; i++)
        if (!v->arch[i].ptx && arch_rank(&v->arch[i], device->sm) > 0)
            return false;
    return true;
}

static void say_loaded(const lathe_kernel_set *set, const struct aot_kernel *kernel,
                       const struct aot_variant *v, const struct device *device)
{
    struct phrase text = {{0}, 0};
    if (!process.log)
        return;
    const bool ptx = is_ptx_alone(v, device);
    lathe__say(&text, "%s: loading for compute capability %d.%d", kernel->function, device->sm / 10,
               device->sm % 10);
    if (ptx)
        lathe__say(&text, ", from PTX, which the driver compiles; `%s,%s%s` would add code of its own",
                   set->command, device->arch, set->options);
    process.log(process.log_user, ptx ? 0 : 1, text.text);
}

static lathe_status process_driver(const struct driver **out, lathe_error *err)
{
    struct driver *driver = atomic_load_explicit(&process.driver, memory_order_acquire);
    lathe_status status = LATHE_OK;
    if (!driver) {
        pthread_mutex_lock(&process.lock);
        driver = atomic_load_explicit(&process.driver, memory_order_acquire);
        if (!driver)
            status = lathe__driver_open(&driver, err);
        if (status == LATHE_OK)
            atomic_store_explicit(&process.driver, driver, memory_order_release);
        pthread_mutex_unlock(&process.lock);
    }
    *out = driver;
    return status;
}

static lathe_status primary_context(const struct driver *d, struct CUctx_st **out, lathe_error *err)
{
    lathe_status status = LATHE_OK;
    int device = 0;
    *out = atomic_load_explicit(&process.primary, memory_order_acquire);
    if (*out)
        return LATHE_OK;
    pthread_mutex_lock(&process.lock);
    *out = atomic_load_explicit(&process.primary, memory_order_acquire);
    if (!*out) {
        status = lathe__driver_check(d, d->cuDeviceGet(&device, 0), "cuDeviceGet", err);
        if (status == LATHE_OK)
            status = lathe__driver_check(d, d->cuDevicePrimaryCtxRetain(out, device),
                                         "cuDevicePrimaryCtxRetain", err);
        if (status == LATHE_OK)
            atomic_store_explicit(&process.primary, *out, memory_order_release);
    }
    pthread_mutex_unlock(&process.lock);
    return status;
}

static lathe_status find_place(const struct driver *d, struct place *out, lathe_error *err)
{
    unsigned long long id = 0;
    out->context = NULL;
    TRY(lathe__driver_check(d, d->cuCtxGetCurrent(&out->context), "cuCtxGetCurrent", err));
    if (!out->context)
        TRY(primary_context(d, &out->context, err));
    if (!d->cuCtxGetId || d->cuCtxGetId(out->context, &id) != CU_SUCCESS)
        id = (unsigned long long)(uintptr_t)out->context;
    out->id = id;
    return LATHE_OK;
}

static const struct aot_loaded *find_loaded(const struct aot_kernel *kernel, uint64_t id)
{
    const struct aot_loaded *at = __atomic_load_n(kernel->loaded, __ATOMIC_ACQUIRE);
    while (at && at->context_id != id)
        at = at->next;
    return at;
}

/* The context is current. */
static lathe_status load_variant(const struct driver *d, const lathe_kernel_set *set,
                                 const struct aot_kernel *kernel, struct aot_loaded *out, lathe_error *err)
{
    struct device device;
    int ordinal = 0;
    if (d->cuCtxGetDevice)
        TRY(lathe__driver_check(d, d->cuCtxGetDevice(&ordinal), "cuCtxGetDevice", err));
    TRY(lathe__driver_device(d, ordinal, &device, err));
    out->variant = lathe__aot_pick_variant(kernel, &device);
    if (!out->variant)
        return no_variant(set, kernel, &device, err);
    say_loaded(set, kernel, out->variant, &device);
    const struct image image = {.data = out->variant->image};
    return lathe__module_load(&out->module, d, &image, 1, out->variant->source, err);
}

/* Under the lock of loading. */
static lathe_status load_kernel(const struct driver *d, const lathe_kernel_set *set,
                                const struct aot_kernel *kernel, const struct place *place,
                                const struct aot_loaded **out, lathe_error *err)
{
    bool pushed = false;
    *out = find_loaded(kernel, place->id);
    if (*out)
        return LATHE_OK;
    struct aot_loaded *fresh = calloc(1, sizeof *fresh);
    if (!fresh)
        return lathe__fail_memory(err);
    lathe_status status = lathe__context_enter(d, place->context, &pushed, err);
    if (status == LATHE_OK) {
        status = load_variant(d, set, kernel, fresh, err);
        lathe__context_leave(d, pushed);
    }
    if (status != LATHE_OK) {
        free(fresh);
        return status;
    }
    fresh->context_id = place->id;
    fresh->next = *kernel->loaded;
    __atomic_store_n(kernel->loaded, fresh, __ATOMIC_RELEASE);
    *out = fresh;
    return LATHE_OK;
}

/* ---- the call ------------------------------------------------------------------------------------- */

lathe_status lathe__set_launch_on(const struct driver *driver, const lathe_kernel_set *set, int kernel,
                                  const void *args, void *workspace, lathe_stream stream, lathe_error *err)
{
    lathe_arg arg[MAX_ARGS];
    struct problem given;
    struct place place;
    if (!args)
        return no_args(err);
    TRY(check_set(set, kernel, err));
    const int n = lathe__aot_args(set, args, arg);
    TRY(lathe__problem_from_args(set->sig, arg, n, true, &given, err));
    const int number = find_kernel(set, kernel, &given);
    if (number < 0)
        return no_kernel(set, &given, err);
    const struct aot_kernel *k = &set->kernel[number];
    if (!driver)
        TRY(process_driver(&driver, err));
    TRY(find_place(driver, &place, err));
    const struct aot_loaded *loaded = find_loaded(k, place.id);
    if (!loaded) {
        pthread_mutex_lock(&process.lock);
        const lathe_status status = load_kernel(driver, set, k, &place, &loaded, err);
        pthread_mutex_unlock(&process.lock);
        TRY(status);
    }
    const struct callable callable = {set->sig,       lathe__built_presence(set->sig),
                                      k->built,       loaded->variant->source,
                                      loaded->module, place.context};
    return lathe__launch_checked(&callable, &given, arg, n, workspace, stream, err);
}

lathe_status lathe_set_launch(const lathe_kernel_set *set, int kernel, const void *args, void *workspace,
                              lathe_stream stream, lathe_error *err)
{
    return lathe__set_launch_on(NULL, set, kernel, args, workspace, stream, err);
}
