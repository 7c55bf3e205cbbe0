/*
 * parts.c: the parts of a source -> one image, each part compiled by a thread of its own. NVRTC compiles in
 * as many threads as call it, so a pass takes as long as its longest part. In: a source, one arch; out: a set
 * of images and one log, malloc'd, the caller's. With one core, one part, or an NVRTC that takes turns the
 * text is compiled in one go: the same kernels come out, so what a cache has does not depend on who filled
 * it.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/compile/compile.h"
#include "runtime/compile/images.h"

enum {
    FIRST_PARALLEL_MAJOR = 12, /* of NVRTC; measured with 13.0. Before, one lock holds all of a compilation */
    STACK_BYTES = 16 * 1024 * 1024 /* of a thread: what the C library gives may be 128 KiB */
};

struct part {
    struct piece piece[2];
    int n_pieces;
    unsigned char *image; /* of these pieces */
    size_t image_size;
    const char *how; /* it was made */
    char *log;
    lathe_status status;
    lathe_error error;
};

struct work {
    const struct compiler *compiler;
    const struct source *source;
    const char *arch;
    atomic_int next;    /* the next part that nobody has taken, counted from 1 */
    atomic_bool failed; /* what is not begun need not be */
    struct part part[MAX_COMPILED_PARTS];
};

static int core_count(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return CPU_COUNT(&set);
    const long cores = sysconf(_SC_NPROCESSORS_ONLN); /* more than a set of that size holds */
    return cores < 1 ? 1 : (int)cores;
}

bool lathe__parts_pay(const struct compiler *compiler, const struct source *source)
{
    return source->n_parts > 1 && compiler->major >= FIRST_PARALLEL_MAJOR && core_count() > 1;
}

/* ---- threads -------------------------------------------------------------------------------------- */

static lathe_status make_part(const struct work *w, int number, struct part *part)
{
    TRY(lathe__compile_arch(w->compiler, w->source, w->arch, number, part->piece, &part->n_pieces, &part->log,
                            &part->error));
    if (!part->log)
        return lathe__fail_memory(&part->error);
    return lathe__image_make(w->compiler, part->piece, part->n_pieces, &part->image, &part->image_size,
                             &part->how, &part->error);
}

/* Part 0, of the short kernels, is taken last. */
static void *run(void *user)
{
    struct work *w = user;
    const int n = w->source->n_parts;
    for (int i = atomic_fetch_add(&w->next, 1); i <= n && !atomic_load(&w->failed);
         i = atomic_fetch_add(&w->next, 1)) {
        struct part *part = &w->part[i % n];
        part->status = make_part(w, i % n, part);
        if (part->status != LATHE_OK)
            atomic_store(&w->failed, true);
    }
    return NULL;
}

/* The program's signals are for its own threads. */
static bool start(pthread_t *thread, struct work *w)
{
    pthread_attr_t attributes;
    sigset_t all;
    sigset_t before;
    if (pthread_attr_init(&attributes) != 0)
        return false;
    (void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const bool started = pthread_create(thread, &attributes, run, w) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return started;
}

static void run_threads(struct work *w)
{
    pthread_t thread[MAX_COMPILED_PARTS];
    const int cores = core_count();
    const int most = w->source->n_parts < cores ? w->source->n_parts : cores;
    int n = 0;
    while (n + 1 < most && start(&thread[n], w))
        n++;
    run(w); /* this thread works too, and does all of it where no other starts */
    for (int i = 0; i < n; i++)
        pthread_join(thread[i], NULL);
}

/* ---- what comes out ------------------------------------------------------------------------------- */

/* Bytes before the first line of ptxas: what the front end said, of a text that the parts share. */
static size_t front_bytes(const char *log)
{
    const char *line = log;
    while (*line && strncmp(line, "ptxas", 5) != 0)
        line += strcspn(line, "\n") + (line[strcspn(line, "\n")] == '\n');
    return (size_t)(line - log);
}

static char *join_logs(const struct part *part, int n, const char *note)
{
    const size_t front = front_bytes(part[0].log);
    size_t size = strlen(note) + 1;
    for (int i = 0; i < n; i++)
        size += strlen(part[i].log);
    char *all = malloc(size);
    size_t at = 0;
    for (int i = 0; all && i < n; i++) {
        const size_t own = front_bytes(part[i].log);
        const bool again = i > 0 && own == front && memcmp(part[i].log, part[0].log, own) == 0;
        at += (size_t)snprintf(all + at, size - at, "%s", part[i].log + (again ? own : 0));
    }
    if (all)
        snprintf(all + at, size - at, "%s", note);
    return all;
}

static lathe_status join_images(const struct work *w, unsigned char **image, size_t *size, char **log,
                                lathe_error *err)
{
    struct image one[MAX_COMPILED_PARTS] = {{NULL, 0}};
    char note[200];
    const int n = w->source->n_parts;
    for (int i = 0; i < n; i++)
        one[i] = (struct image){w->part[i].image, w->part[i].image_size};
    snprintf(note, sizeof note, "bundle: %d parts of %d piece%s, %s\n", n, w->part[0].n_pieces,
             w->part[0].n_pieces == 1 ? "" : "s", w->part[n - 1].how);
    *image = lathe__images_join(one, n, size);
    *log = join_logs(w->part, n, note);
    return *image && *log ? LATHE_OK : lathe__fail_memory(err);
}

static lathe_status finish(const struct work *w, unsigned char **image, size_t *size, char **log,
                           lathe_error *err)
{
    for (int i = 0; i < w->source->n_parts; i++)
        if (w->part[i].status != LATHE_OK) { /* of a mistake in what they share, the first tells */
            if (err)
                *err = w->part[i].error;
            return w->part[i].status;
        }
    const lathe_status status = join_images(w, image, size, log, err);
    if (status != LATHE_OK) {
        free(*image);
        free(*log);
        *image = NULL;
        *log = NULL;
    }
    return status;
}

lathe_status lathe__compile_parts(const struct compiler *compiler, const struct source *source,
                                  const char *arch, unsigned char **image, size_t *size, char **log,
                                  lathe_error *err)
{
    struct work *w = calloc(1, sizeof *w);
    *image = NULL;
    *log = NULL;
    *size = 0;
    if (!w)
        return lathe__fail_memory(err);
    w->compiler = compiler;
    w->source = source;
    w->arch = arch;
    atomic_init(&w->next, 1);
    atomic_init(&w->failed, false);
    run_threads(w);
    const lathe_status status = finish(w, image, size, log, err);
    for (int i = 0; i < source->n_parts; i++) {
        free(w->part[i].log);
        free(w->part[i].image);
        for (int k = 0; k < w->part[i].n_pieces; k++)
            free(w->part[i].piece[k].data);
    }
    free(w);
    return status;
}
