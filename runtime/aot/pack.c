/*
 * pack.c: makes a library: compiles, writes its files into a folder of its own (folder.c), runs the C
 * compiler and the archiver there, and publishes by renaming. In: a library whose sources are
 * there; out: files in library->folder, or a sentence and nothing. The C compiler runs in that folder on
 * relative names and gets no time and no path, so the archive depends on its input alone.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/aot/make.h"

enum { MAX_WORDS = 16, WORD_BYTES = PATH_BYTES };

struct workshop {
    struct aot_library *library;
    int words; /* of cc */
    char word[MAX_WORDS][WORD_BYTES];
};

enum published { THE_ARCHIVE, THE_HEADER, THE_PKGCONFIG, THE_MANIFEST, N_PUBLISHED };

static void published_name(const struct aot_library *library, int which, char *out, size_t size)
{
    static const char *const prefix[N_PUBLISHED] = {"lib", "", "", ""};
    static const char *const suffix[N_PUBLISHED] = {"a", "h", "pc", "manifest"};
    snprintf(out, size, "%s%s.%s", prefix[which], library->name, suffix[which]);
}

static lathe_status publish(struct workshop *w, lathe_error *err)
{
    char name[N_PUBLISHED][64];
    for (int i = 0; i < N_PUBLISHED; i++)
        published_name(w->library, i, name[i], sizeof name[i]);
    return lathe__aot_folder_publish(w->library, (const char(*)[64])name, N_PUBLISHED, err);
}

/* ---- files ---------------------------------------------------------------------------------------- */

static FILE *open_file(const char *folder, const char *name)
{
    char path[AOT_PLACE_BYTES + 128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return fopen(path, "wbe");
}

static lathe_status close_file(FILE *f, const char *name, lathe_error *err)
{
    bool good = f != NULL;
    if (good)
        good = ferror(f) == 0;
    if (f)
        good = fclose(f) == 0 && good;
    if (good)
        return LATHE_OK;
    return lathe__fail(err, LATHE_ARG, "-o: %s cannot be written: %s", name, strerror(errno));
}

static lathe_status write_bytes(const char *folder, const char *name, const void *data, size_t size,
                                lathe_error *err)
{
    FILE *f = open_file(folder, name);
    const bool written = f && fwrite(data, 1, size, f) == size;
    TRY(close_file(f, name, err));
    return written ? LATHE_OK : lathe__fail(err, LATHE_ARG, "-o: %s cannot be written", name);
}

static lathe_status write_header(const struct workshop *w, lathe_error *err)
{
    char name[64];
    published_name(w->library, THE_HEADER, name, sizeof name);
    FILE *f = open_file(w->library->at.path, name);
    if (f)
        lathe__aot_write_header(f, w->library);
    return close_file(f, name, err);
}

/* ---- the C compiler and the archiver -------------------------------------------------------------- */

/* "ccache gcc" is a program and its first argument. The folder changes before the program is looked for, so a
   relative path is made absolute here. */
static lathe_status split_compiler(struct workshop *w, lathe_error *err)
{
    const char *at = w->library->cc;
    for (at += strspn(at, " \t"); *at; at += strspn(at, " \t")) {
        const size_t n = strcspn(at, " \t");
        if (w->words == MAX_WORDS - 2 || n >= WORD_BYTES)
            return lathe__fail(err, LATHE_ARG, "--cc: expected at most %d words, given more", MAX_WORDS - 2);
        snprintf(w->word[w->words++], WORD_BYTES, "%.*s", (int)n, at);
        at += n;
    }
    if (w->words == 0)
        return lathe__fail(err, LATHE_ARG, "--cc: expected a C compiler, given nothing");
    if (strchr(w->word[0], '/') && w->word[0][0] != '/') {
        char *absolute = realpath(w->word[0], NULL);
        if (absolute)
            snprintf(w->word[0], WORD_BYTES, "%s", absolute);
        free(absolute);
    }
    return LATHE_OK;
}

/* The first line of what a program said that is an error, or the first line. */
static void read_log(const struct workshop *w, char *out, size_t size)
{
    char path[AOT_PLACE_BYTES + 32];
    char line[512];
    snprintf(path, sizeof path, "%s/log", w->library->at.build);
    FILE *f = fopen(path, "re");
    out[0] = '\0';
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        const bool error = strstr(line, "rror") != NULL;
        if (!out[0] || error)
            snprintf(out, size, "%s", line);
        if (error)
            break;
    }
    if (f)
        (void)fclose(f);
}

/* In the new process: its folder, its files, the signals that this thread may hold back; then the program.
   What fails is told through the pipe, which the program's start closes. Between fork and exec nothing is
   allocated. */
_Noreturn static void become(const char *folder, char *const *arguments, int failures)
{
    sigset_t none;
    int in = -1;
    int out = -1;
    sigemptyset(&none);
    if (chdir(folder) == 0 && (in = open("/dev/null", O_RDONLY)) >= 0 &&
        (out = open("log", O_WRONLY | O_CREAT | O_TRUNC, 0644)) >= 0 && dup2(in, 0) == 0 &&
        dup2(out, 1) == 1 && dup2(out, 2) == 2 && sigprocmask(SIG_SETMASK, &none, NULL) == 0)
        execvp(arguments[0], arguments);
    const int failure = errno;
    (void)!write(failures, &failure, sizeof failure);
    _exit(127);
}

/* posix_spawn can change the folder since glibc 2.29 alone, and wheels run on 2.28. Returns 0 or errno. */
static int start(const char *folder, char *const *arguments, pid_t *pid)
{
    int failures[2];
    int failure = 0;
    if (pipe2(failures, O_CLOEXEC) != 0)
        return errno;
    *pid = fork();
    if (*pid == 0)
        become(folder, arguments, failures[1]);
    if (*pid < 0)
        failure = errno;
    close(failures[1]);
    if (*pid > 0) {
        ssize_t n = 0;
        while ((n = read(failures[0], &failure, sizeof failure)) < 0 && errno == EINTR)
            ;
        if (n != (ssize_t)sizeof failure)
            failure = 0;
    }
    close(failures[0]);
    return failure;
}

static int spawn(const struct workshop *w, char *const *arguments, int *wait_status)
{
    pid_t pid = -1;
    int failure = start(w->library->at.build, arguments, &pid);
    if (pid > 0 && !failure)
        atomic_store(&w->library->child, pid);
    while (pid > 0 && waitpid(pid, wait_status, 0) < 0)
        if (errno != EINTR) {
            failure = failure ? failure : errno;
            break;
        }
    atomic_store(&w->library->child, 0);
    return failure;
}

static lathe_status run_program(const struct workshop *w, char *const *arguments, const char *option,
                                const char *what, lathe_error *err)
{
    int wait_status = 0;
    char log[512];
    const int failure = spawn(w, arguments, &wait_status);
    if (failure)
        return lathe__fail(err, LATHE_CACHE, "%s: '%s' cannot be started: %s; %s names another", what,
                           arguments[0], strerror(failure), option);
    if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0)
        return LATHE_OK;
    read_log(w, log, sizeof log);
    if (!log[0] && WIFEXITED(wait_status))
        snprintf(log, sizeof log, "exit code %d, and it gave no reason (is there room in its folder?)",
                 WEXITSTATUS(wait_status));
    else if (!log[0])
        snprintf(log, sizeof log, "ended by signal %d", WTERMSIG(wait_status));
    return lathe__fail(err, LATHE_CACHE, "%s: '%s' failed: %s", what, arguments[0], log);
}

static lathe_status compile_file(struct workshop *w, const char *from, const char *to, lathe_error *err)
{
    static const char *const fixed[] = {"-std=c11", "-O2", "-g0", "-fPIC", "-I.", "-I..", "-c", "-o"};
    char option[sizeof fixed / sizeof fixed[0]][16];
    char name[2][2 * AOT_FUNCTION_BYTES];
    char *arguments[MAX_WORDS + 12];
    int n = 0;
    for (int i = 0; i < w->words; i++)
        arguments[n++] = w->word[i];
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++) {
        snprintf(option[i], sizeof option[i], "%s", fixed[i]);
        arguments[n++] = option[i];
    }
    snprintf(name[0], sizeof name[0], "%s", to);
    snprintf(name[1], sizeof name[1], "%s", from);
    arguments[n++] = name[0];
    arguments[n++] = name[1];
    arguments[n] = NULL;
    return run_program(w, arguments, "--cc", "the C compiler", err);
}

/* A file of a spec and pass. The hyphen stands in no spec's name, so no two files share one. */
static void file_name(const struct workshop *w, int spec, const char *ending, char *out, size_t size)
{
    snprintf(out, size, "%s_%s%s", w->library->name, w->library->spec[spec].stem, ending);
}

/* Data first: a C compiler that is missing is found before minutes of work on kernels. */
static lathe_status compile_data(struct workshop *w, lathe_error *err)
{
    char name[AOT_FUNCTION_BYTES];
    char object[AOT_FUNCTION_BYTES];
    for (int i = 0; i < AOT_MAX_HEADERS && w->library->header[i].name; i++)
        TRY(write_bytes(w->library->at.build, w->library->header[i].name, w->library->header[i].data,
                        w->library->header[i].size, err));
    TRY(write_header(w, err));
    for (int s = 0; s < w->library->n_specs; s++) {
        file_name(w, s, ".c", name, sizeof name);
        FILE *f = open_file(w->library->at.build, name);
        if (f)
            lathe__aot_write_data(f, w->library, &w->library->spec[s]);
        TRY(close_file(f, name, err));
        file_name(w, s, ".o", object, sizeof object);
        TRY(compile_file(w, name, object, err));
    }
    return LATHE_OK;
}

static lathe_status write_images(const struct workshop *w, const struct aot_spec *spec, lathe_error *err)
{
    char name[AOT_FUNCTION_BYTES];
    for (int i = 0; i < spec->n_items; i++)
        for (int u = 0; u < spec->item[i].n_units; u++) {
            const struct aot_unit *unit = &spec->item[i].unit[u];
            snprintf(name, sizeof name, "%s_%d.image", spec->stem, lathe__aot_unit_number(spec, unit));
            TRY(write_bytes(w->library->at.build, name, unit->image, unit->image_size, err));
        }
    return LATHE_OK;
}

static lathe_status compile_code(struct workshop *w, lathe_error *err)
{
    char name[AOT_FUNCTION_BYTES];
    char object[AOT_FUNCTION_BYTES];
    for (int s = 0; s < w->library->n_specs; s++) {
        TRY(write_images(w, &w->library->spec[s], err));
        file_name(w, s, "-code.s", name, sizeof name);
        FILE *f = open_file(w->library->at.build, name);
        if (f)
            lathe__aot_write_code(f, w->library, &w->library->spec[s]);
        TRY(close_file(f, name, err));
        file_name(w, s, "-code.o", object, sizeof object);
        TRY(compile_file(w, name, object, err));
    }
    return LATHE_OK;
}

/* D: no times, no owners, whatever the archiver was built with. */
static lathe_status archive(struct workshop *w, lathe_error *err)
{
    char ar[PATH_BYTES];
    char flags[] = "rcsD";
    char library[64];
    const int n_objects = 2 * w->library->n_specs;
    char(*object)[AOT_FUNCTION_BYTES] = calloc((size_t)n_objects + 1, sizeof *object);
    char **arguments = calloc((size_t)n_objects + 4, sizeof *arguments);
    lathe_status status = LATHE_MEMORY;
    if (object && arguments) {
        snprintf(ar, sizeof ar, "%s", w->library->ar);
        published_name(w->library, THE_ARCHIVE, library, sizeof library);
        char up[80];
        snprintf(up, sizeof up, "../%s", library);
        arguments[0] = ar;
        arguments[1] = flags;
        arguments[2] = up;
        for (int i = 0; i < n_objects; i++) {
            file_name(w, i / 2, i % 2 == 1 ? "-code.o" : ".o", object[i], sizeof object[i]);
            arguments[3 + i] = object[i];
        }
        status = run_program(w, arguments, "AR in the environment", "the archiver", err);
    } else {
        lathe__fail_memory(err);
    }
    free(object);
    free(arguments);
    return status;
}

/* ---- all of it ------------------------------------------------------------------------------------ */

static lathe_status write_texts(const struct workshop *w, const struct compiler *compiler, lathe_error *err)
{
    char name[64];
    published_name(w->library, THE_PKGCONFIG, name, sizeof name);
    FILE *f = open_file(w->library->at.path, name);
    if (f)
        lathe__aot_write_pkgconfig(f, w->library);
    TRY(close_file(f, name, err));
    published_name(w->library, THE_MANIFEST, name, sizeof name);
    f = open_file(w->library->at.path, name);
    if (f)
        lathe__aot_write_manifest(f, w->library, compiler);
    return close_file(f, name, err);
}

static lathe_status check_archs(const struct aot_library *library, const struct compiler *compiler,
                                lathe_error *err)
{
    char arch[16];
    for (int i = 0; i < library->n_archs; i++) {
        bool substituted = true;
        if (lathe__compiler_arch(compiler, library->arch[i], arch, &substituted, NULL) == LATHE_OK &&
            !substituted)
            continue;
        return lathe__fail(err, LATHE_ARG, "--arch: NVRTC %d.%d does not know %s; it knows sm_%d to sm_%d",
                           compiler->major, compiler->minor, library->arch[i],
                           compiler->n_archs ? compiler->arch[0] : 0,
                           compiler->n_archs ? compiler->arch[compiler->n_archs - 1] : 0);
    }
    return LATHE_OK;
}

static void digest_sources(struct aot_library *library)
{
    for (int s = 0; s < library->n_specs; s++)
        for (int i = 0; i < library->spec[s].n_items; i++)
            for (int u = 0; u < library->spec[s].item[i].n_units; u++) {
                struct aot_unit *unit = &library->spec[s].item[i].unit[u];
                lathe__key_make(&unit->source, NULL, 0, "", unit->digest);
            }
}

static lathe_status make_in(struct workshop *w, struct aot_library *library, const struct compiler *compiler,
                            lathe_error *err)
{
    TRY(split_compiler(w, err));
    TRY(lathe__aot_folder_open(library, err));
    TRY(compile_data(w, err));
    TRY(lathe__aot_compile(library, compiler, err));
    TRY(compile_code(w, err));
    TRY(archive(w, err));
    TRY(write_texts(w, compiler, err));
    return publish(w, err);
}

lathe_status lathe__aot_make(struct aot_library *library, const struct compiler *compiler, lathe_error *err)
{
    TRY(check_archs(library, compiler, err));
    digest_sources(library);
    struct workshop *w = calloc(1, sizeof *w);
    if (!w)
        return lathe__fail_memory(err);
    w->library = library;
    library->at.lock = -1;
    const lathe_status status = make_in(w, library, compiler, err);
    lathe__aot_folder_close(library);
    free(w);
    return status;
}
