/*
 * make.h: how a library of compiled kernels is made: what the tool hands over, and the steps in order.
 * The tool plans and emits (it sees gen/); the rooms here compile, bundle, write C, run the C compiler and
 * the archiver, and publish. Everything in a library is a function of what is below: no times, no paths.
 */
#ifndef LATHE_AOT_MAKE_H
#define LATHE_AOT_MAKE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "runtime/cache/cache.h"
#include "runtime/compile/compile.h"
#include "runtime/recipe/aot.h"

enum { AOT_NAME_BYTES = 33, AOT_SUFFIX_BYTES = 384, AOT_FUNCTION_BYTES = 512, AOT_MAX_HEADERS = 4 };

struct aot_unit { /* one source, for one or several archs of a kernel */
    struct source source;
    unsigned char digest[KEY_BYTES]; /* of the source's texts */
    int n_archs;
    int arch[AOT_MAX_ARCHS];               /* numbers of the library's archs */
    struct piece piece[2 * AOT_MAX_ARCHS]; /* per arch: cubin, PTX; data NULL where there is none */
    unsigned char *image;
    size_t image_size;
    unsigned char image_digest[KEY_BYTES];
};

struct aot_item { /* one kernel */
    struct problem problem;
    char suffix[AOT_SUFFIX_BYTES]; /* bf16_d128: all that is compiled in */
    int n_units;
    struct aot_unit *unit; /* n_units */
};

struct aot_spec {              /* one pass of a spec */
    char name[NAME_MAX_BYTES]; /* a C identifier */
    char
        stem[NAME_MAX_BYTES + 16]; /* of struct and data: the name; of other passes NAME_backward and so on */
    char shown[128];               /* as the user named it, without folders */
    lathe_pass pass;
    struct signature sig;
    int n_items;
    struct aot_item *item;
};

enum { AOT_PLACE_BYTES = PATH_BYTES + 64 };
struct aot_folder {                   /* where a library is made */
    char target[PATH_BYTES];          /* the final folder */
    char path[AOT_PLACE_BYTES];       /* beside or inside it: holds what will be published; "": none */
    char build[AOT_PLACE_BYTES + 16]; /* in that; "": none */
    bool exists;                      /* the final folder is there already: files are renamed into it */
    int lock;                         /* a descriptor that says that its maker lives; -1: none */
};

struct aot_library { /* lathe__aot_free; strings are the caller's */
    const char *name;
    const char *folder; /* where to write */
    const char *command;
    const char *options;
    const char *cc; /* a program and its first options */
    const char *ar;
    int n_archs;
    char arch[AOT_MAX_ARCHS][16]; /* "sm_90a", in the order of age */
    int ptx_arch;                 /* the newest that runs forward; -1: none does */
    int n_specs;
    struct aot_spec *spec;
    struct {
        const char *name;
        const char *data;
        size_t size;
    } header[AOT_MAX_HEADERS]; /* what the C files include */
    int n_threads;
    struct aot_folder at;
    pthread_mutex_t *at_lock; /* of `at`, where another thread may call lathe__aot_abandon; NULL: none does */
    atomic_int child;         /* the program that runs for it; 0: none */
    atomic_bool abandoned;
    struct cache *cache; /* of pieces that were compiled before; NULL: none */
    struct reporter report;
};

void lathe__aot_free(struct aot_library *library); /* what its pointers own; not the struct */
/* All of it: compile, write, publish into library->folder. On failure nothing is left there. Errors: ARG (the
   folder, an arch that NVRTC does not know), COMPILE (spec, line, what the compiler said), CACHE (the C
   compiler, the archiver, a bundler), MEMORY. */
lathe_status lathe__aot_make(struct aot_library *library, const struct compiler *compiler, lathe_error *err);

/* Called in another thread while lathe__aot_make works, by a program that is about to end: removes what it
   has made so far. lathe__aot_make fails then, if the program lets it come so far. */
void lathe__aot_abandon(struct aot_library *library);

/* ---- folder.c: the folder that a library is made in */

/* Makes it, and removes those that were left beside it by makers who died. Errors: ARG. */
lathe_status lathe__aot_folder_open(struct aot_library *library, lathe_error *err);
/* Puts the files `name` into the final place. Errors: ARG. */
lathe_status lathe__aot_folder_publish(struct aot_library *library, const char (*name)[64], int n,
                                       lathe_error *err);
/* Removes what is left of it. */
void lathe__aot_folder_close(struct aot_library *library);

/* ---- compile.c: sources -> images, on several threads */

lathe_status lathe__aot_compile(struct aot_library *library, const struct compiler *compiler,
                                lathe_error *err);
/* cache.c: lathe__compile_arch, or what it gave before. cache NULL: none. May run on several threads. */
lathe_status lathe__aot_pieces(struct cache *cache, const struct compiler *compiler,
                               const struct source *source, const char *arch, struct piece piece[2], int *n,
                               lathe_error *err);
/* "specs/alibi.lua:4": the spec line that a line of a source's text was made from; false: none. */
bool lathe__aot_spec_line(const struct source *source, const char *file, int line, char *out, size_t size);

/* ---- names.c: names that do not depend on how anything is written */

/* False: too long. */
bool lathe__aot_suffix(const struct signature *sig, const struct problem *p, char out[AOT_SUFFIX_BYTES]);
/* NULL, or why it cannot be the name of a library: a phrase. */
const char *lathe__aot_name_error(const char *name);
/* The name of an argument's member: the argument's, unless C or C++ has it. */
void lathe__aot_member(const char *argument, char out[NAME_MAX_BYTES + 2]);
void lathe__aot_function(const struct aot_library *library, const struct aot_spec *spec,
                         const struct aot_item *item,
                         char out[AOT_FUNCTION_BYTES]); /* item NULL: dispatcher */
/* Number of the unit within its spec: names the image. */
int lathe__aot_unit_number(const struct aot_spec *spec, const struct aot_unit *unit);
enum aot_field_kind lathe__aot_field_kind(const struct sig_arg *a);

/* ---- text.c, header.c: the files of a library. A failed write sticks to the stream. */

void lathe__aot_write_data(FILE *f, const struct aot_library *library, const struct aot_spec *spec);
void lathe__aot_write_code(FILE *f, const struct aot_library *library, const struct aot_spec *spec);
void lathe__aot_write_header(FILE *f, const struct aot_library *library);
void lathe__aot_write_pkgconfig(FILE *f, const struct aot_library *library);
void lathe__aot_write_manifest(FILE *f, const struct aot_library *library, const struct compiler *compiler);

#endif
