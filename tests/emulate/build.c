/*
 * build.c: texts to shared objects by the system's C++ compiler, and from there into this process.
 *
 * In: the generator's texts. They are written, all but common/ptx*.cuh, to a temporary folder; the search
 * path then gives those of tests/emulate in their place. Out: kernels, kept by the workshop that closes them.
 */
#include "harness.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- running the compiler ----------------------------------------------------------------------------- */

static int run_program(char *const *argv, const char *log)
{
    const pid_t child = fork();
    if (child == 0) {
        const int out = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        if (out >= 0) {
            (void)dup2(out, 1);
            (void)dup2(out, 2);
        }
        execvp(argv[0], argv);
        _exit(127);
    }
    int status = 0;
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return child > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

enum { MAX_FLAGS = 24 };

static int compile(const struct workshop *w, const char *const *more, const char *from, const char *to,
                   const char *log)
{
    char include[300];
    char texts[400];
    const char *argv[MAX_FLAGS + 9] = {"g++",           "-std=c++20",        "-w",    "-fPIC",
                                       "-march=native", "-U_FORTIFY_SOURCE", include, texts};
    int n = 8;
    snprintf(include, sizeof include, "-I%s", w->sources);
    snprintf(texts, sizeof texts, "-I%.*s", (int)(strrchr(from, '/') - from), from);
    for (int i = 0; more[i] && i < MAX_FLAGS - 4; i++)
        argv[n++] = more[i];
    argv[n++] = "-o";
    argv[n++] = to;
    argv[n] = from;
    return run_program((char *const *)(uintptr_t)argv, log);
}

static int compile_core(const struct workshop *w, const char *from, const char *to, const char *log)
{
    static const char *const FLAGS[] = {"-O3", "-shared", NULL};
    return compile(w, FLAGS, from, to, log);
}

/* Index, alignment and shift errors trap; accesses to memory are told to the core. -fno-extern-tls-init:
   dynamic shared memory has no constructor. Linked in a second step, so that no sanitizer's library comes
   along. */
static int compile_kernel(const struct workshop *w, const char *from, const char *object, const char *to,
                          const char *log)
{
    static const char *const FLAGS[] = {"-O1",
                                        "-c",
                                        "-fno-math-errno",
                                        "-fno-trapping-math",
                                        "-fno-strict-aliasing",
                                        "-fno-extern-tls-init",
                                        "-fsanitize=alignment,bounds,shift",
                                        "-fsanitize-undefined-trap-on-error",
                                        "-fsanitize=thread",
                                        NULL};
    static const char *const LINK[] = {"-shared", NULL};
    const int result = compile(w, FLAGS, from, object, log);
    return result == 0 ? compile(w, LINK, object, to, log) : result;
}

static void first_error(const char *log, char *why, size_t size)
{
    char line[400] = "";
    FILE *f = fopen(log, "r");
    snprintf(why, size, "the C++ compiler failed without a message");
    while (f && fgets(line, sizeof line, f)) {
        if (strstr(line, "error")) {
            line[strcspn(line, "\n")] = 0;
            snprintf(why, size, "does not compile: %s", line);
            break;
        }
    }
    if (f)
        fclose(f);
}

/* ---- the workshop ------------------------------------------------------------------------------------- */

static void path_in(const struct workshop *w, const char *name, char *out, size_t size)
{
    snprintf(out, size, "%s/%s", w->folder, name);
}

/* The emulator's core, from the store where it is there. Of the compiler's result. */
static int make_core(struct workshop *w, const char *log)
{
    char source[400];
    char kept[600];
    struct sha256 digest;
    store_start(&w->store, &digest, false);
    store_add_text(&digest, "core");
    const bool known = store_object(&w->store, &digest, kept, sizeof kept);
    if (known)
        snprintf(w->core, sizeof w->core, "%s", kept);
    else
        path_in(w, "core.so", w->core, sizeof w->core);
    snprintf(source, sizeof source, "%s/emulator.cpp", w->sources);
    const int result = known ? 0 : compile_core(w, source, w->core, log);
    if (result == 0 && !known)
        (void)store_keep(&w->store, w->core, kept);
    return result;
}

enum workshop_state workshop_open(struct workshop *w, const char *sources, bool fresh)
{
    const char *base = getenv("TMPDIR");
    char error[400];
    char log[400];
    memset(w, 0, sizeof *w);
    w->sources = sources;
    if (!store_open(&w->store, sources, fresh))
        return WORKSHOP_BROKEN;
    snprintf(w->folder, sizeof w->folder, "%s/lathe-emulate-XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(w->folder)) {
        fprintf(stderr, "lathe_emulate: no folder can be made in %s\n", base && *base ? base : "/tmp");
        return WORKSHOP_BROKEN;
    }
    path_in(w, "log", log, sizeof log);
    const int result = make_core(w, log);
    if (result == 0)
        return WORKSHOP_READY;
    first_error(log, error, sizeof error);
    fprintf(stderr, "lathe_emulate: %s\n",
            result == 127 ? "skipped: g++, which compiles the emulated kernels, is not here" : error);
    workshop_close(w);
    return result == 127 ? WORKSHOP_MISSING : WORKSHOP_BROKEN;
}

void workshop_close(struct workshop *w)
{
    const char *const argv[] = {"rm", "-rf", w->folder, NULL};
    (void)run_program((char *const *)(uintptr_t)argv, "/dev/null");
}

bool workshop_start(struct workshop *w, char *why, size_t size)
{
    void *core = dlopen(w->core, RTLD_NOW | RTLD_GLOBAL);
    void *run = core ? dlsym(core, "emulate_run") : NULL;
    memcpy(&w->run, &run, sizeof w->run);
    if (!run)
        snprintf(why, size, "the emulator cannot be loaded: %s", dlerror());
    return run != NULL;
}

/* ---- kernels --------------------------------------------------------------------------------------------
 */

static bool write_file(const char *path, const char *data, size_t size)
{
    FILE *f = fopen(path, "w");
    if (!f)
        return false;
    const bool good = fwrite(data, 1, size, f) == size;
    return fclose(f) == 0 && good;
}

/* Texts that the folder tests/emulate has in its own way: an instruction each. */
bool text_is_stood_in_for(const struct text *t)
{
    return strncmp(t->name, "common/ptx", 10) == 0;
}

/* Names of texts have folders, which are made here. */
static bool write_text(const char *folder, const struct text *t)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", folder, t->name);
    for (char *slash = strchr(path + strlen(folder) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        const bool made = mkdir(path, 0700) == 0 || errno == EEXIST;
        *slash = '/';
        if (!made)
            return false;
    }
    return write_file(path, t->data, t->size);
}

static bool write_texts(const struct source *s, bool hopper, const char *folder)
{
    char path[400];
    struct text_buf unit = {0};
    text_add(&unit, "#define EMULATE_HOPPER %d\n", hopper);
    text_add(&unit, "#include \"emulator.hpp\"\n#include \"%s\"\n", s->text[0].name);
    for (int i = 0; i < s->n_launches; i++)
        text_add(&unit, "EMULATE_KERNEL(%d, %s)\n", i, s->launch[i].entry);
    snprintf(path, sizeof path, "%s/unit.cpp", folder);
    bool good = !unit.failed && write_file(path, unit.data, unit.size);
    for (int i = 0; i < s->n_texts && good; i++)
        good = text_is_stood_in_for(&s->text[i]) || write_text(folder, &s->text[i]);
    text_free(&unit);
    return good;
}

static bool find_entries(struct kernel *k, char *why, size_t size)
{
    char name[64];
    for (int i = 0; i < k->source.n_launches; i++) {
        snprintf(name, sizeof name, "emulate_thread_%d", i);
        void *thread = dlsym(k->library, name);
        memcpy(&k->thread[i], &thread, sizeof k->thread[i]);
        snprintf(name, sizeof name, "emulate_bytes_%d", i);
        const unsigned *bytes = dlsym(k->library, name);
        if (!thread || !bytes) {
            snprintf(why, size, "kernel %s is missing from its object", k->source.launch[i].entry);
            return false;
        }
        k->param_bytes[i] = *bytes;
        if (*bytes != k->source.launch[i].param_bytes) {
            snprintf(why, size, "the parameter block of %s has %u bytes on the device, %u in the recipe",
                     k->source.launch[i].entry, *bytes, k->source.launch[i].param_bytes);
            return false;
        }
    }
    return true;
}

/* Texts that stand for those of the folder tests/emulate are no part of it. */
static void add_texts(struct sha256 *digest, const struct source *s, bool hopper)
{
    store_add(digest, &hopper, sizeof hopper);
    for (int i = 0; i < s->n_texts; i++) {
        store_add_text(digest, s->text[i].name);
        if (!text_is_stood_in_for(&s->text[i]))
            store_add(digest, s->text[i].data, s->text[i].size);
    }
    for (int i = 0; i < s->n_launches; i++)
        store_add_text(digest, s->launch[i].entry);
}

/* Compiled in a folder of its own, and kept under the path `kept`. Out: where it lies. */
static bool compile_texts(const struct workshop *w, const struct kernel *k, const char *kept, char *object,
                          size_t object_size, char *why, size_t size)
{
    char folder[300];
    char source[400];
    char unit[400];
    char log[400];
    snprintf(folder, sizeof folder, "%s/XXXXXX", w->folder); /* no process number: they come again */
    const bool made = mkdtemp(folder) != NULL;
    snprintf(source, sizeof source, "%s/unit.cpp", folder);
    snprintf(unit, sizeof unit, "%s/unit.o", folder);
    snprintf(object, object_size, "%s/unit.so", folder);
    snprintf(log, sizeof log, "%s/log", folder);
    if (!made || !write_texts(&k->source, k->hopper, folder)) {
        snprintf(why, size, "the texts cannot be written to %.200s", folder);
        return false;
    }
    if (compile_kernel(w, source, unit, object, log) != 0) {
        first_error(log, why, size);
        return false;
    }
    (void)store_keep(&w->store, object, kept);
    return true;
}

static bool build(const struct workshop *w, struct kernel *k, char *why, size_t size)
{
    char kept[600];
    char object[600];
    struct sha256 digest;
    store_start(&w->store, &digest, false);
    add_texts(&digest, &k->source, k->hopper);
    if (store_object(&w->store, &digest, kept, sizeof kept))
        snprintf(object, sizeof object, "%s", kept);
    else if (!compile_texts(w, k, kept, object, sizeof object, why, size))
        return false;
    k->library = dlopen(object, RTLD_NOW | RTLD_LOCAL);
    if (!k->library)
        snprintf(why, size, "cannot be loaded: %s", dlerror());
    return k->library && find_entries(k, why, size);
}

static bool same_texts(const struct source *a, const struct source *b)
{
    bool same = a->n_texts == b->n_texts && a->n_launches == b->n_launches;
    for (int i = 0; same && i < a->n_texts; i++)
        same = a->text[i].size == b->text[i].size &&
               memcmp(a->text[i].data, b->text[i].data, a->text[i].size) == 0;
    return same;
}

static void kernel_free(struct kernel *k)
{
    if (k->library)
        dlclose(k->library);
    source_free(&k->source);
    free(k);
}

const struct kernel *workshop_kernel(struct workshop *w, struct source *source, char *why, size_t size)
{
    for (int i = 0; i < w->n_kernels; i++) {
        struct kernel *k = w->kernel[i];
        if (k->hopper != w->hopper || !same_texts(&k->source, source))
            continue;
        source_free(&k->source); /* the same texts, but a recipe of its own: grids may differ */
        k->source = *source;
        return k;
    }
    struct kernel *k =
        w->n_kernels < (int)(sizeof w->kernel / sizeof *w->kernel) ? calloc(1, sizeof *k) : NULL;
    if (!k) {
        source_free(source);
        snprintf(why, size, "too many kernels in one process");
        return NULL;
    }
    k->source = *source;
    k->hopper = w->hopper;
    if (!build(w, k, why, size)) {
        kernel_free(k);
        return NULL;
    }
    return w->kernel[w->n_kernels++] = k;
}

void workshop_end(struct workshop *w)
{
    for (int i = 0; i < w->n_kernels; i++)
        kernel_free(w->kernel[i]);
    w->n_kernels = 0;
}
