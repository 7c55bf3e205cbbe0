/*
 * cmd_aot.c: `lathe aot`: specs x problems x architectures -> a static library with a header. In: parsed
 * options. Out: files in a folder, and a line about them on standard output. This file plans and emits every
 * kernel into the plain structs of runtime/aot/make.h, which own the sources; the rooms of runtime/ do the
 * rest. What is wrong with the input is found here, before anything is compiled.
 */
#include "gen/tool/tool.h"
#include "runtime/base/environ.h"
#include "runtime/aot/make.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/stat.h>

_Static_assert((int)MAX_ARCHS <= (int)AOT_MAX_ARCHS, "a library holds every arch that can be named");

struct aot_command {
    const struct options *o;
    struct aot_library library;
    struct device device[MAX_ARCHS]; /* in the library's order */
    bool *used;                      /* per problem: some spec knows its names */
    bool said;                       /* that a GPU would get kernels of its own */
    struct text_buf command;
    struct text_buf options;
};

static int out_of_memory(void)
{
    tool_complain("out of memory");
    return CODE_ENVIRONMENT;
}

/* ---- options -------------------------------------------------------------------------------------- */

static int check_options(const struct options *o, const char *name)
{
    const char *why = lathe__aot_name_error(name);
    if (!o->out) {
        tool_complain("aot: expected -o DIR");
        return CODE_USAGE;
    }
    if (why) {
        tool_complain("--name: expected %s, given '%s'", why, name);
        return CODE_USAGE;
    }
    return CODE_OK;
}

static int compare_devices(const void *a, const void *b)
{
    const struct device *x = a;
    const struct device *y = b;
    return x->sm != y->sm ? x->sm - y->sm : strcmp(x->arch, y->arch);
}

/* Oldest first: the order of --arch changes nothing. */
static int take_archs(struct aot_command *a)
{
    struct aot_library *l = &a->library;
    l->n_archs = a->o->n_archs ? a->o->n_archs : 1;
    memcpy(a->device, a->o->arch, sizeof a->device);
    if (!a->o->n_archs && !device_parse("sm_80", &a->device[0]))
        return CODE_USAGE;
    qsort(a->device, (size_t)l->n_archs, sizeof a->device[0], compare_devices);
    l->ptx_arch = -1;
    for (int i = 0; i < l->n_archs; i++) {
        const char *arch = a->device[i].arch;
        snprintf(l->arch[i], sizeof l->arch[i], "%s", arch);
        if (strspn(arch + 3, "0123456789") == strlen(arch + 3))
            l->ptx_arch = i;
    }
    return CODE_OK;
}

static bool has_pass(const struct options *o, int pass)
{
    return o->passes ? (o->passes >> pass & 1) != 0 : pass == LATHE_FORWARD;
}

static int n_passes(const struct options *o)
{
    int n = 0;
    for (int pass = LATHE_FORWARD; pass <= LATHE_COMBINE; pass++)
        n += has_pass(o, pass);
    return n > 0 ? n : 1; /* never 0: options name passes alone that there are */
}

/* What `lathe aot` would take again, without folders of this machine. */
static void write_command(struct aot_command *a)
{
    const char *comma = "";
    text_add(&a->command, "lathe aot");
    for (int i = 0; i < a->library.n_specs; i += n_passes(a->o)) /* each spec once */
        text_add(&a->command, " %s", a->library.spec[i].shown);
    text_add(&a->command, " --pass ");
    for (int pass = LATHE_FORWARD; pass <= LATHE_COMBINE; pass++)
        if (has_pass(a->o, pass)) {
            text_add(&a->command, "%s%s", comma, lathe__pass_text((lathe_pass)pass));
            comma = ",";
        }
    text_add(&a->command, " --arch ");
    for (int i = 0; i < a->library.n_archs; i++)
        text_add(&a->command, "%s%s", i ? "," : "", a->library.arch[i]);
    for (int i = 0; i < a->o->n_problems; i++)
        text_add(&a->options, " --problem %s", a->o->problems[i]);
    for (int i = 0; i < a->o->param.n; i++)
        text_add(&a->options, " --param %s=%s", a->o->param.item[i].name, a->o->param.item[i].value);
    text_add(&a->options, " --name %s -o DIR", a->library.name);
    a->library.command = a->command.data;
    a->library.options = a->options.data;
}

/* ---- problems ------------------------------------------------------------------------------------- */

/* "," after which `name=` stands, or the beginning. */
static bool has_item(const char *text, const char *name)
{
    const size_t size = strlen(name);
    for (const char *at = text; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, name, size) == 0 && at[size] == '=')
            return true;
    return false;
}

/* A size that an input names for itself is not compiled in, so it need not be given: any will do. */
static void fill_free_dims(const struct signature *sig, const char *text, struct text_buf *out)
{
    text_add(out, "%s", text);
    for (int k = 0; k < sig->n_free; k++) {
        bool needed = false;
        for (int i = 0; i < sig->n_args; i++)
            for (int d = 0; d < sig->arg[i].ndim; d++)
                needed |= !sig->arg[i].optional && sig->arg[i].dim[d].literal == 0 &&
                          sig->arg[i].dim[d].sym == SYM_FREE + k;
        if (needed && !has_item(text, sig->free_name[k]))
            text_add(out, "%s%s=1", out->size ? "," : "", sig->free_name[k]);
    }
}

static lathe_status parse_problem(const struct ir *ir, const struct signature *sig, const char *text,
                                  struct problem *out, lathe_error *err)
{
    struct text_buf whole = {0};
    fill_free_dims(sig, text, &whole);
    lathe_status status = LATHE_MEMORY;
    if (!whole.failed)
        status = problem_parse_of(ir, sig, whole.data ? whole.data : "", out, err);
    else
        lathe__fail_memory(err);
    text_free(&whole);
    return status;
}

/* ---- kernels -------------------------------------------------------------------------------------- */

/* Archs whose source is the same share a unit. */
static void add_unit(struct aot_item *item, int arch, struct source *source)
{
    for (int u = 0; u < item->n_units; u++)
        if (source_same(&item->unit[u].source, source)) {
            source_free(source);
            item->unit[u].arch[item->unit[u].n_archs++] = arch;
            return;
        }
    struct aot_unit *unit = &item->unit[item->n_units++];
    unit->source = *source;
    unit->n_archs = 1;
    unit->arch[0] = arch;
}

static int complain_kernel(const struct aot_spec *spec, const char *problem, const char *arch,
                           const lathe_error *err)
{
    lathe_error whole = {.status = err->status};
    snprintf(whole.text, sizeof whole.text, "spec '%s', problem '%.200s', %s: %s%.1700s", spec->shown,
             problem, arch, err->status == LATHE_UNSUPPORTED ? "no template serves it:\n" : "", err->text);
    if (whole.status == LATHE_SPEC)
        whole.status = LATHE_ARG; /* no list of places */
    return complain_error(&whole);
}

static int emit_item(struct aot_command *a, const struct ir *ir, const struct aot_spec *spec,
                     const char *problem, struct aot_item *item)
{
    item->unit = calloc((size_t)a->library.n_archs, sizeof *item->unit);
    if (!item->unit)
        return out_of_memory();
    for (int i = 0; i < a->library.n_archs; i++) {
        struct source source;
        lathe_error err = {0};
        memset(&source, 0, sizeof source);
        if (kernel_make_source(ir, spec->pass, &spec->sig, &item->problem, &a->device[i], &source, &err) !=
            LATHE_OK)
            return complain_kernel(spec, problem, a->library.arch[i], &err);
        add_unit(item, i, &source);
    }
    return CODE_OK;
}

/* Is the same compiled in? */
static bool same_kernel(const struct signature *sig, const struct problem *a, const struct problem *b)
{
    return lathe__same_build(sig, a, b) && a->unaligned == b->unaligned && a->folded == b->folded &&
           a->deterministic == b->deterministic && lathe__lengths(a) == lathe__lengths(b);
}

/* Lengths are forgotten where no arch has other kernels for them: one serves all. Low tiles serve other
   lengths as well as ever, but not as fast. Copies out of pages need a workspace for all places of any table,
   where a kernel that reads pages needs none: so they are for problems that say how large the pool is. */
static void forget_lengths(const struct aot_command *a, enum kind kind, lathe_pass pass,
                           const struct signature *sig, const char *text, struct problem *problem)
{
    const int64_t seqs = lathe__packed(sig, problem);
    int asked = 0;
    for (int i = 0; i < a->library.n_archs; i++)
        asked |= plan_lengths(kind, pass, problem, &a->device[i]);
    const int forgotten = LENGTHS_ANY_LOW_TILES | (strstr(text, "pool=") ? 0 : LENGTHS_GATHERED);
    if (asked & forgotten)
        problem->dim[SYM_Q] = -1;
    asked &= ~forgotten;
    if (!(asked & LENGTHS_FEW_QUERIES) && (lathe__lengths(problem) & LENGTHS_FEW_QUERIES))
        problem->dim[SYM_Q] = -1;
    if (!(asked & LENGTHS_ODD_PAGES) && (lathe__lengths(problem) & LENGTHS_ODD_PAGES))
        problem->dim[SYM_PAGE] = -1;
    if (!(asked & LENGTHS_MANY_KEYS) && (lathe__lengths(problem) & LENGTHS_MANY_KEYS))
        problem->dim[SYM_KV] = asked ? 1024 * (seqs > 0 && !problem->paged ? seqs : 1) : -1;
}

/* Once for a library. */
static void say_portable(struct aot_command *a, const struct ir *ir, lathe_pass pass,
                         const struct problem *problem)
{
    for (int i = 0; i < a->library.n_archs; i++)
        a->said = a->said || isa_is_own(&a->device[i]);
    for (int i = 0; i < a->library.n_archs; i++)
        a->said = a->said || tool_say_portable(ir, pass, problem, &a->device[i], a->o->n_archs > 0);
}

/* One problem of one spec; one that comes to a kernel that is there already adds nothing. */
static int add_problem(struct aot_command *a, const struct ir *ir, struct aot_spec *spec, const char *text)
{
    struct aot_item *item = &spec->item[spec->n_items];
    lathe_error err = {0};
    const lathe_status status = parse_problem(ir, &spec->sig, text, &item->problem, &err);
    if (status != LATHE_OK)
        return complain_kernel(spec, text, a->library.arch[0], &err);
    tool_warn_ranges(ir, &item->problem);
    forget_lengths(a, ir->kind, spec->pass, &spec->sig, text, &item->problem);
    for (int i = 0; i < spec->n_items; i++)
        if (same_kernel(&spec->sig, &spec->item[i].problem, &item->problem))
            return CODE_OK;
    if (!lathe__aot_suffix(&spec->sig, &item->problem, item->suffix)) {
        tool_complain(
            "spec '%s', problem '%.200s': the kernel's name would be too long; inputs with shorter names, or "
            "fewer that are left out, make it shorter",
            spec->shown, text);
        return CODE_USAGE;
    }
    spec->n_items++; /* what it owns is freed also where the rest fails */
    const int code = emit_item(a, ir, spec, text, item);
    if (code == CODE_OK)
        say_portable(a, ir, spec->pass, &item->problem);
    return code;
}

static int complain_of_names(const struct aot_spec *spec, const char *text)
{
    struct phrase example = {{0}, 0};
    struct problem problem;
    lathe_error err = {0};
    (void)problem_parse(&spec->sig, text, &problem, &err); /* which name, and what it knows */
    lathe__say(&example, "dtype=bf16");
    for (int i = 0; i < spec->sig.n_sizes; i++)
        if (spec->sig.size[i].built && spec->sig.size[i].usual > 0)
            lathe__say(&example, ",%s=%d", lathe__sym_text(&spec->sig, spec->sig.size[i].sym),
                       spec->sig.size[i].usual);
    tool_complain("spec '%s' knows the names of no --problem that is given ('%.200s': %s); it takes %s",
                  spec->shown, text, err.text, example.text);
    return CODE_USAGE;
}

static int add_problems(struct aot_command *a, const struct ir *ir, struct aot_spec *spec)
{
    spec->item = calloc((size_t)a->o->n_problems + 1, sizeof *spec->item);
    if (!spec->item)
        return out_of_memory();
    if (a->o->n_problems == 0)
        return add_problem(a, ir, spec, "");
    for (int i = 0; i < a->o->n_problems; i++) {
        if (!problem_is_of(ir, &spec->sig, a->o->problems[i]))
            continue;
        a->used[i] = true;
        const int code = add_problem(a, ir, spec, a->o->problems[i]);
        if (code != CODE_OK)
            return code;
    }
    if (spec->n_items > 0)
        return CODE_OK;
    return complain_of_names(spec, a->o->problems[0]);
}

/* ---- specs ---------------------------------------------------------------------------------------- */

static const char *without_folders(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* The same spec in another folder gives the same library: generated text names files without folders. */
static void name_spec(struct ir *ir, const char *operand, struct aot_spec *spec)
{
    snprintf(spec->name, sizeof spec->name, "%s", ir->name);
    snprintf(spec->stem, sizeof spec->stem, "%s%s%s", ir->name, spec->pass == LATHE_FORWARD ? "" : "_",
             spec->pass == LATHE_FORWARD ? "" : lathe__pass_text(spec->pass));
    snprintf(spec->shown, sizeof spec->shown, "%.100s", without_folders(operand));
    for (char *c = spec->shown; *c; c++) {
        const bool plain = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9');
        if (!plain && !strchr("_.-", *c))
            *c = '_';
    }
    for (size_t i = 0; i < sizeof ir->file / sizeof ir->file[0]; i++) {
        const char *plain = without_folders(ir->file[i]);
        memmove(ir->file[i], plain, strlen(plain) + 1);
    }
}

static int add_pass(struct aot_command *a, struct ir *ir, const char *operand, lathe_pass pass)
{
    struct aot_library *l = &a->library;
    struct aot_spec *spec = &l->spec[l->n_specs];
    spec->pass = pass;
    name_spec(ir, operand, spec);
    for (int i = 0; i < l->n_specs; i++)
        if (strcmp(l->spec[i].stem, spec->stem) == 0) {
            tool_complain("specs '%s' and '%s' are both called %s in the library; rename one of the files",
                          l->spec[i].shown, operand, spec->stem);
            return CODE_USAGE;
        }
    l->n_specs++;
    signature_make(ir, pass, &spec->sig);
    return add_problems(a, ir, spec);
}

static int add_spec(struct aot_command *a, const char *operand)
{
    int code = CODE_OK;
    struct ir *ir = tool_spec(operand, a->o, &code);
    if (!ir)
        return code;
    tool_warn_proofs(ir);
    for (int pass = LATHE_FORWARD; pass <= LATHE_COMBINE && code == CODE_OK; pass++)
        if (has_pass(a->o, pass))
            code = add_pass(a, ir, operand, (lathe_pass)pass);
    ir_free(ir);
    return code;
}

static int add_specs(struct aot_command *a)
{
    const struct options *o = a->o;
    a->library.spec = calloc((size_t)o->n_operands * (size_t)n_passes(o), sizeof *a->library.spec);
    a->used = calloc((size_t)o->n_problems + 1, sizeof *a->used);
    if (!a->library.spec || !a->used)
        return out_of_memory();
    for (int i = 0; i < o->n_operands; i++) {
        const int code = add_spec(a, o->operand[i]);
        if (code != CODE_OK)
            return code;
    }
    for (int i = 0; i < o->n_problems; i++) {
        struct problem problem;
        lathe_error err = {0};
        if (a->used[i])
            continue;
        (void)problem_parse(&a->library.spec[0].sig, o->problems[i], &problem,
                            &err); /* names what it knows */
        tool_complain("--problem '%.200s' is of none of the specs: %s", o->problems[i], err.text);
        return CODE_USAGE;
    }
    return tool_params_known(o);
}

/* Specs may be called so that a kernel of one has the name of another's dispatcher. */
static int check_names(const struct aot_library *l)
{
    struct text_buf all = {0};
    int code = CODE_OK;
    text_add(&all, "\n");
    for (int s = 0; s < l->n_specs && code == CODE_OK; s++)
        for (int i = -1; i < l->spec[s].n_items && code == CODE_OK; i++) {
            char name[AOT_FUNCTION_BYTES + 2] = "\n";
            lathe__aot_function(l, &l->spec[s], i < 0 ? NULL : &l->spec[s].item[i], name + 1);
            snprintf(name + strlen(name), sizeof name - strlen(name), "\n");
            if (all.data && strstr(all.data, name)) {
                tool_complain("two functions would be called %.*s; rename the spec '%s'",
                              (int)strlen(name) - 2, name + 1, l->spec[s].shown);
                code = CODE_USAGE;
            }
            text_add(&all, "%s", name + 1);
        }
    if (all.failed && code == CODE_OK)
        code = out_of_memory();
    text_free(&all);
    return code;
}

/* ---- the library ---------------------------------------------------------------------------------- */

static void add_headers(struct aot_library *l)
{
    static const char *const files[AOT_MAX_HEADERS] = {"include/lathe_types.h", "include/lathe_aot.h",
                                                       "runtime/recipe/recipe.h", "runtime/recipe/aot.h"};
    for (int i = 0; i < AOT_MAX_HEADERS; i++) {
        const struct embedded *file = embedded_find(files[i]);
        if (!file)
            continue; /* the C compiler says which is missing */
        l->header[i].name = without_folders(file->name);
        l->header[i].data = file->data;
        l->header[i].size = file->size;
    }
}

static void show_progress(void *user, int level, const char *text)
{
    (void)level;
    progress_text(user, "%s", text);
}

static void cache_warning(void *user, int level, const char *text)
{
    (void)user;
    if (level == 0)
        tool_complain("%s", text);
}

static const char *either(const char *given, const char *variable, const char *otherwise)
{
    const char *value = given ? given : getenv(variable);
    return value && value[0] ? value : otherwise;
}

static int report(const struct aot_command *a)
{
    const struct aot_library *l = &a->library;
    struct text_buf path = {0};
    struct stat status;
    int n = 0;
    for (int i = 0; i < l->n_specs; i++)
        n += l->spec[i].n_items;
    size_t size = strlen(a->o->out);
    while (size > 1 && a->o->out[size - 1] == '/')
        size--;
    text_add(&path, "%.*s/lib%s.a", (int)size, a->o->out, l->name);
    const long long bytes = path.data && stat(path.data, &status) == 0 ? (long long)status.st_size : 0;
    const int n_specs = l->n_specs / n_passes(a->o);
    printf("%s: %d kernel%s of %d spec%s for", path.data ? path.data : l->name, n, n == 1 ? "" : "s", n_specs,
           n_specs == 1 ? "" : "s");
    for (int i = 0; i < l->n_archs; i++)
        printf(" %s", l->arch[i]);
    printf(", %lld bytes\n", bytes);
    text_free(&path);
    return CODE_OK;
}

/* Its own folder: what is in it is of no use to the JIT. False: complained. */
static bool open_cache(struct cache *cache, const char *path)
{
    if (path && !*path)
        tool_complain("--cache: expected a folder, given ''");
    if (path)
        lathe__cache_open_tool(cache, path, false, (struct reporter){cache_warning, NULL});
    return !path || cache->dir_fd >= 0;
}

static void abandon(void *user)
{
    lathe__aot_abandon(user);
}

static lathe_status make_library(struct aot_library *l, const struct compiler *compiler, lathe_error *err)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct progress progress;
    struct interrupt interrupt;
    l->at_lock = &lock;
    interrupt_start(&interrupt, abandon, l);
    progress_start(&progress, "compiling");
    l->report = (struct reporter){show_progress, &progress};
    const lathe_status status = lathe__aot_make(l, compiler, err);
    progress_stop(&progress);
    interrupt_stop(&interrupt);
    l->at_lock = NULL;
    return status;
}

static int make(struct aot_command *a)
{
    struct cache cache = {.dir_fd = -1};
    struct environment environment;
    struct compiler *compiler = NULL;
    lathe_error err = {0};
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    struct aot_library *l = &a->library;
    l->n_threads = cores < 1 ? 1 : (int)cores;
    if (a->o->jobs > 0 && a->o->jobs < l->n_threads)
        l->n_threads = a->o->jobs;
    l->folder = a->o->out;
    l->cc = either(a->o->cc, "CC", "cc");
    l->ar = either(NULL, "AR", "ar");
    add_headers(l);
    write_command(a);
    if (a->command.failed || a->options.failed)
        return out_of_memory();
    if (!open_cache(&cache, a->o->cache))
        return a->o->cache[0] ? CODE_ENVIRONMENT : CODE_USAGE;
    l->cache = a->o->cache ? &cache : NULL;
    lathe__environment_read(&environment);
    lathe_status status = lathe__compiler_open(&compiler, environment.cuda_home, 0, &err);
    if (status == LATHE_OK)
        status = make_library(l, compiler, &err);
    lathe__compiler_close(compiler);
    lathe__cache_close(&cache);
    l->cache = NULL;
    return status == LATHE_OK ? report(a) : complain_error(&err);
}

int cmd_aot(const struct options *o)
{
    struct aot_command a = {.o = o};
    a.library.name = o->name ? o->name : "kernels";
    int code = check_options(o, a.library.name);
    if (code == CODE_OK && !tool_may_compile("aot"))
        code = CODE_ENVIRONMENT;
    if (code == CODE_OK)
        code = take_archs(&a);
    if (code == CODE_OK)
        code = add_specs(&a);
    if (code == CODE_OK)
        code = check_names(&a.library);
    if (code == CODE_OK)
        code = make(&a);
    lathe__aot_free(&a.library);
    text_free(&a.command);
    text_free(&a.options);
    free(a.used);
    return code;
}
