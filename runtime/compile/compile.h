/*
 * compile.h: NVRTC and the bundlers: texts -> code. Of NVRTC as of the driver: its types and prototypes are
 * here and in driver.def.
 */
#ifndef LATHE_RT_COMPILE_H
#define LATHE_RT_COMPILE_H

#include <stdbool.h>
#include <stddef.h>

#include "lathe.h"
#include "runtime/base/base.h"
#include "runtime/recipe/recipe.h"

struct nvrtc_program;
struct nvfatbin;
enum { MAX_KNOWN_ARCHS = 64 };

struct compiler {
    void *nvrtc;
    void *nvfatbin; /* NULL: not found */
    int major;
    int minor;
    char identity[64];     /* "nvrtc 13.0 109338064": version and size of the library file, for the key */
    char path[PATH_BYTES]; /* of the library's file, "" where the loader does not say */
    char fatbinary[PATH_BYTES]; /* the toolkit's program, "" where not found */
    int n_archs;
    int arch[MAX_KNOWN_ARCHS]; /* 75, 80, ... ascending */
#define CUDA_ENTRY(name, version, required, params)
#define NVRTC_ENTRY(name, params)    int(*name) params;
#define NVFATBIN_ENTRY(name, params) int(*name) params;
#include "runtime/driver/driver.def"
#undef CUDA_ENTRY
#undef NVRTC_ENTRY
#undef NVFATBIN_ENTRY
};

/* Find and open NVRTC, and nvFatbin or `fatbinary` where there is one. `driver_version` (12080; 0: unknown)
   puts a library of the driver's own major version first. Errors CUDA: what is missing, where it was looked
   for. */
lathe_status lathe__compiler_open(struct compiler **out, const char *cuda_home, int driver_version,
                                  lathe_error *err);
void lathe__compiler_close(struct compiler *compiler);

/* packages.c: the file that this code is in, a library or the program. False: unknown. */
bool lathe__own_place(char out[PATH_BYTES]);
/* "libnvrtc" 12 -> its file, where pip or conda has put one beside this library or program. */
bool lathe__find_packaged(const char *name, int major, char out[PATH_BYTES]);

/* The arch to compile for: `arch` itself, or, where this NVRTC does not know it, "compute_NN" of the newest
   it knows below (PTX, finished by the driver; *substituted is set). Errors UNSUPPORTED: none is old enough.
 */
lathe_status lathe__compiler_arch(const struct compiler *compiler, const char *arch, char out[16],
                                  bool *substituted, lathe_error *err);

enum { MAX_OPTIONS = 8, OPTION_BYTES = 48 };
/* Options for one arch, in order. Returns how many. */
int lathe__compile_options(const char *arch, char options[MAX_OPTIONS][OPTION_BYTES]);
/* Which part a kernel is, of those whose texts do not say so: what parts are compiled with, too. Returns how
   many. */
int lathe__part_options(const struct source *source, char options[MAX_COMPILED_PARTS][OPTION_BYTES]);

/* Compile for every arch ("sm_90a", "sm_80", "compute_90") and bundle: cubins, plus PTX for archs that run
   forward (no 'a' suffix) and for virtual ones. *image is a fatbin; one bare cubin where that is all there is
   or no bundler was found (*log says so). *log: what the compiler and the bundler said, never NULL on
   success. Both are malloc'd, the caller's. `log` may be NULL. Errors: COMPILE (file, line, text of the first
   error), MEMORY. */
lathe_status lathe__compile(const struct source *source, const char *const *archs, int n_archs,
                            unsigned char **image, size_t *size, char **log, const struct compiler *compiler,
                            lathe_error *err);

/* The same for sources that differ by arch, up to MAX_COMPILE_JOBS pairs; a fatbin of one cubin, too. */
enum { MAX_COMPILE_JOBS = 16 };
struct compile_job {
    const struct source *source;
    const char *arch;
};
lathe_status lathe__compile_jobs(const struct compile_job *job, int n_jobs, unsigned char **image,
                                 size_t *size, char **log, const struct compiler *compiler, lathe_error *err);

/* bundle.c: several pieces -> one image. */
struct piece {
    bool ptx;
    char arch[16]; /* "90a": without the prefix */
    char *data;
    size_t size; /* of PTX: with the final zero */
};
lathe_status lathe__bundle(const struct compiler *compiler, const struct piece *piece, int n,
                           unsigned char **image, size_t *size, const char **how, lathe_error *err);
/* The same, but machine code alone, which leaves the driver nothing to choose, stays as it is: its data are
   taken from the piece. `fatbinary`, a program, takes 10 ms. */
lathe_status lathe__image_make(const struct compiler *compiler, struct piece *piece, int n,
                               unsigned char **image, size_t *size, const char **how, lathe_error *err);
enum { WHOLE_TEXT = -1 };
/* Compile one part of a source (or WHOLE_TEXT) for one arch: its cubin, and PTX where the arch runs forward,
   are appended to pieces[*n]; their data, and *log, are malloc'd, the caller's also on failure. May run on
   several threads at once. Errors: COMPILE, MEMORY. */
lathe_status lathe__compile_arch(const struct compiler *compiler, const struct source *source,
                                 const char *arch, int part, struct piece *pieces, int *n, char **log,
                                 lathe_error *err);
const char *lathe__image_kind(const unsigned char *image,
                              size_t size); /* "fatbin", "cubin", "PTX", "unknown" */

/* ---- parts.c: kernels of one text, compiled at the same time ---------------------------------------- */

/* Are there parts, more than one core, and a compiler that works in several threads at once? */
bool lathe__parts_pay(const struct compiler *compiler, const struct source *source);
/* Compile each part of a source on a thread of its own, as many as there are cores; *image is a set of their
   images. For a source with parts. Otherwise as lathe__compile for one arch; `log` may not be NULL. */
lathe_status lathe__compile_parts(const struct compiler *compiler, const struct source *source,
                                  const char *arch, unsigned char **image, size_t *size, char **log,
                                  lathe_error *err);

#endif
