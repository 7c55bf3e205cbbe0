/*
 * compile.c: the sources of a library -> images, on several threads. In: units with their archs; out: in
 * each unit an image that holds the code of all of them, and PTX where it is wanted. The order in which
 * threads finish changes nothing in what comes out. The first failure in the order of the library ends the
 * work.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/aot/make.h"

enum { MAX_THREADS = 64 };

struct task { /* one source for one arch */
    const struct aot_spec *spec;
    struct aot_unit *unit;
    int at; /* of the unit's archs */
};

struct work {
    const struct aot_library *library;
    const struct compiler *compiler;
    int n_tasks;
    struct task *task;
    pthread_mutex_t lock; /* of all below */
    int next;
    int done;
    int failed; /* number of the first task that failed; n_tasks: none */
    lathe_status status;
    lathe_error error;
};

/* ---- where a failure comes from ------------------------------------------------------------------- */

static const char *find_line(const char *text, int line)
{
    for (int i = 1; text && i < line; i++) {
        text = strchr(text, '\n');
        text = text ? text + 1 : NULL;
    }
    return text;
}

/* Every line that computes a value of the spec ends with "// file:line". */
bool lathe__aot_spec_line(const struct source *source, const char *file, int line, char *out, size_t size)
{
    const char *text = NULL;
    for (int i = 0; i < source->n_texts; i++)
        if (strcmp(source->text[i].name, file) == 0)
            text = source->text[i].data;
    const char *begin = text && line > 0 ? find_line(text, line) : NULL;
    if (!begin)
        return false;
    const size_t length = strcspn(begin, "\n");
    const char *mark = NULL;
    for (size_t i = 0; i + 3 < length; i++)
        if (memcmp(begin + i, "// ", 3) == 0)
            mark = begin + i + 3;
    const char *colon = mark ? memchr(mark, ':', (size_t)(begin + length - mark)) : NULL;
    if (!colon || strspn(colon + 1, "0123456789") == 0)
        return false;
    const size_t used = (size_t)(colon + 1 - mark) + strspn(colon + 1, "0123456789");
    snprintf(out, size, "%.*s", (int)used, mark);
    return true;
}

static void explain(const struct task *t, const lathe_error *from, lathe_error *to)
{
    char place[300];
    const bool known = lathe__aot_spec_line(&t->unit->source, from->file, from->line, place, sizeof place);
    lathe__fail(to, from->status, "spec '%s'%s%s: %s", t->spec->shown, known ? ", " : "", known ? place : "",
                from->text);
}

/* ---- one task, one image -------------------------------------------------------------------------- */

static lathe_status compile_task(const struct work *w, const struct task *t, lathe_error *err)
{
    struct aot_unit *unit = t->unit;
    const int number = unit->arch[t->at];
    struct piece piece[2] = {{0}, {0}};
    int n = 0;
    const lathe_status status = lathe__aot_pieces(w->library->cache, w->compiler, &unit->source,
                                                  w->library->arch[number], piece, &n, err);
    for (int i = 0; i < n; i++) {
        if (status == LATHE_OK && (!piece[i].ptx || number == w->library->ptx_arch))
            unit->piece[2 * t->at + (piece[i].ptx ? 1 : 0)] = piece[i];
        else
            free(piece[i].data);
    }
    return status;
}

static lathe_status bundle_unit(const struct compiler *compiler, struct aot_unit *unit, lathe_error *err)
{
    struct piece piece[2 * AOT_MAX_ARCHS];
    const char *how = "";
    struct sha256 s;
    int n = 0;
    for (int i = 0; i < 2 * unit->n_archs; i++)
        if (unit->piece[i].data)
            piece[n++] = unit->piece[i];
    if (n == 0)
        return lathe__fail(err, LATHE_COMPILE, "NVRTC gave no code for %s", unit->source.label);
    TRY(lathe__bundle(compiler, piece, n, &unit->image, &unit->image_size, &how, err));
    if (n > 1 && strcmp(lathe__image_kind(unit->image, unit->image_size), "fatbin") != 0)
        return lathe__fail(
            err, LATHE_CACHE,
            "several architectures in one image need libnvfatbin or the toolkit's program "
            "fatbinary, and neither was found; give one --arch, or install the CUDA toolkit, or pip's "
            "nvidia-nvfatbin (CUDA 12: nvidia-nvfatbin-cu12)");
    lathe__sha256_start(&s);
    lathe__sha256_add(&s, unit->image, unit->image_size);
    lathe__sha256_finish(&s, unit->image_digest);
    for (int i = 0; i < 2 * unit->n_archs; i++) {
        free(unit->piece[i].data);
        unit->piece[i].data = NULL; /* its size and kind are still of use */
    }
    return LATHE_OK;
}

/* ---- threads -------------------------------------------------------------------------------------- */

static int take(struct work *w)
{
    pthread_mutex_lock(&w->lock);
    const int number = w->next < w->n_tasks && w->failed == w->n_tasks ? w->next++ : -1;
    pthread_mutex_unlock(&w->lock);
    return number;
}

static void finish(struct work *w, int number, lathe_status status, const lathe_error *error)
{
    const struct task *t = &w->task[number];
    pthread_mutex_lock(&w->lock);
    w->done++;
    if (status == LATHE_OK)
        lathe__report(&w->library->report, 1, "compiling: %d of %d done, %s for %s", w->done, w->n_tasks,
                      t->unit->source.label, w->library->arch[t->unit->arch[t->at]]);
    else if (number < w->failed) {
        w->failed = number;
        w->status = status;
        explain(t, error, &w->error);
    }
    pthread_mutex_unlock(&w->lock);
}

static void *run(void *user)
{
    struct work *w = user;
    for (int number = take(w); number >= 0; number = take(w)) {
        lathe_error error = {0};
        const lathe_status status = compile_task(w, &w->task[number], &error);
        finish(w, number, status, &error);
    }
    return NULL;
}

static void run_threads(struct work *w)
{
    pthread_t thread[MAX_THREADS];
    int n = 0;
    const int most = w->library->n_threads < MAX_THREADS ? w->library->n_threads : MAX_THREADS;
    while (n + 1 < most && n + 1 < w->n_tasks && pthread_create(&thread[n], NULL, run, w) == 0)
        n++;
    run(w); /* this thread works too */
    for (int i = 0; i < n; i++)
        pthread_join(thread[i], NULL);
}

static int list_tasks(const struct aot_library *library, struct task *out)
{
    int n = 0;
    for (int s = 0; s < library->n_specs; s++)
        for (int i = 0; i < library->spec[s].n_items; i++)
            for (int u = 0; u < library->spec[s].item[i].n_units; u++)
                for (int a = 0; a < library->spec[s].item[i].unit[u].n_archs; a++, n++)
                    if (out)
                        out[n] = (struct task){&library->spec[s], &library->spec[s].item[i].unit[u], a};
    return n;
}

static lathe_status bundle_all(struct work *w, lathe_error *err)
{
    for (int i = 0; i < w->n_tasks; i++) {
        lathe_error error = {0};
        if (w->task[i].at != 0)
            continue;
        const lathe_status status = bundle_unit(w->compiler, w->task[i].unit, &error);
        if (status != LATHE_OK) {
            explain(&w->task[i], &error, err);
            return status;
        }
    }
    return LATHE_OK;
}

lathe_status lathe__aot_compile(struct aot_library *library, const struct compiler *compiler,
                                lathe_error *err)
{
    struct work w = {.library = library, .compiler = compiler, .n_tasks = list_tasks(library, NULL)};
    w.task = calloc((size_t)w.n_tasks + 1, sizeof *w.task);
    if (!w.task)
        return lathe__fail_memory(err);
    list_tasks(library, w.task);
    w.failed = w.n_tasks;
    pthread_mutex_init(&w.lock, NULL);
    run_threads(&w);
    pthread_mutex_destroy(&w.lock);
    lathe_status status = w.status;
    if (status != LATHE_OK && err)
        *err = w.error;
    if (status == LATHE_OK)
        status = bundle_all(&w, err);
    free(w.task);
    return status;
}
