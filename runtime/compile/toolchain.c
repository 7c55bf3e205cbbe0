/*
 * toolchain.c: finds and opens NVRTC, and nvFatbin or the program `fatbinary`. In: CUDA_HOME ("" where it is
 * not set) and the driver's version; out: a table of entry points, owned by the caller until
 * lathe__compiler_close. A library that the process has already loaded (torch brings its own)
 * is found by its soname first. Nothing here needs a GPU.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/compile/compile.h"

/* Once opened, a library stays: unmapping one with a C++ run time inside leaks what that keeps per process.
 */
enum { OLDEST_MAJOR = 12, NEWEST_MAJOR = 13, OPEN_FLAGS = RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE };

enum { MOST_HOME_BYTES = 1000 }; /* of CUDA_HOME: the rest of a path is for /bin/fatbinary */

struct failure { /* the loader's words: of a file that is there, or else the first */
    char said[300];
    bool exists;
};

static void *open_path(const char *path, struct failure *why)
{
    void *library = dlopen(path, OPEN_FLAGS);
    const char *said = library ? NULL : dlerror();
    const bool exists = strchr(path, '/') && access(path, F_OK) == 0;
    if (said && (why->said[0] == '\0' || (exists && !why->exists))) {
        snprintf(why->said, sizeof why->said, "%s", said);
        why->exists = exists;
    }
    return library;
}

static void *open_in(const char *folder, const char *name, struct failure *why)
{
    char path[2 * PATH_BYTES];
    if (folder[0] == '\0')
        return NULL;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return open_path(path, why);
}

/* name.so.13 by soname, then in $CUDA_HOME, among the packages of this installation, and in the usual place.
 */
static void *open_major(const char *name, int major, const char *cuda_home, struct failure *why)
{
    char soname[64];
    char folder[PATH_BYTES + 32];
    snprintf(soname, sizeof soname, "%s.so.%d", name, major);
    void *library = open_path(soname, why);
    if (!library && cuda_home[0]) {
        snprintf(folder, sizeof folder, "%s/lib64", cuda_home);
        library = open_in(folder, soname, why);
    }
    if (!library && lathe__find_packaged(name, major, folder))
        library = open_path(folder, why);
    if (!library)
        library = open_in("/usr/local/cuda/lib64", soname, why);
    if (!library) {
        snprintf(folder, sizeof folder, "/usr/local/cuda-%d/lib64", major);
        library = open_in(folder, soname, why);
    }
    return library;
}

/* Code from a newer major version than the driver's does not load: the driver's own major comes first. */
static void *open_any(const char *name, int preferred, const char *cuda_home, struct failure *why)
{
    void *library = NULL;
    if (preferred >= OLDEST_MAJOR && preferred <= NEWEST_MAJOR)
        library = open_major(name, preferred, cuda_home, why);
    for (int major = NEWEST_MAJOR; !library && major >= OLDEST_MAJOR; major--)
        library = open_major(name, major, cuda_home, why);
    return library;
}

static bool resolve(void *library, const char *name, void *entry)
{
    void *address = dlsym(library, name);
    memcpy(entry, &address, sizeof address);
    return address != NULL;
}

static lathe_status resolve_nvrtc(struct compiler *c, lathe_error *err)
{
#define CUDA_ENTRY(name, version, required, params)
#define NVRTC_ENTRY(name, params)                                                                            \
    if (!resolve(c->nvrtc, #name, &c->name))                                                                 \
        return lathe__fail(err, LATHE_CUDA, "libnvrtc has no %s: it is older than CUDA 12.0", #name);
#define NVFATBIN_ENTRY(name, params)
#include "runtime/driver/driver.def"
#undef CUDA_ENTRY
#undef NVRTC_ENTRY
#undef NVFATBIN_ENTRY
    return LATHE_OK;
}

static bool resolve_nvfatbin(struct compiler *c)
{
    bool all = true;
#define CUDA_ENTRY(name, version, required, params)
#define NVRTC_ENTRY(name, params)
#define NVFATBIN_ENTRY(name, params) all = resolve(c->nvfatbin, #name, &c->name) && all;
#include "runtime/driver/driver.def"
#undef CUDA_ENTRY
#undef NVRTC_ENTRY
#undef NVFATBIN_ENTRY
    return all;
}

static void find_fatbinary(struct compiler *c, const char *cuda_home)
{
    if (cuda_home[0])
        snprintf(c->fatbinary, sizeof c->fatbinary, "%s/bin/fatbinary", cuda_home);
    if (c->fatbinary[0] && access(c->fatbinary, X_OK) == 0)
        return;
    snprintf(c->fatbinary, sizeof c->fatbinary, "/usr/local/cuda/bin/fatbinary");
    if (access(c->fatbinary, X_OK) != 0)
        c->fatbinary[0] = '\0';
}

/* Builds of one version differ in what they generate; the size of the library's file tells them apart. */
static void identify(struct compiler *c)
{
    Dl_info info;
    struct stat status;
    long long bytes = 0;
    void *address;
    memcpy(&address, &c->nvrtcVersion, sizeof address);
    if (dladdr(address, &info) != 0 && info.dli_fname && stat(info.dli_fname, &status) == 0) {
        bytes = (long long)status.st_size;
        snprintf(c->path, sizeof c->path, "%s", info.dli_fname);
    }
    snprintf(c->identity, sizeof c->identity, "nvrtc %d.%d %lld", c->major, c->minor, bytes);
}

static lathe_status ask_nvrtc(struct compiler *c, lathe_error *err)
{
    int n = 0;
    if (c->nvrtcVersion(&c->major, &c->minor) != 0 || c->nvrtcGetNumSupportedArchs(&n) != 0 || n < 1 ||
        n > MAX_KNOWN_ARCHS || c->nvrtcGetSupportedArchs(c->arch) != 0)
        return lathe__fail(err, LATHE_CUDA, "NVRTC does not say which version it is or which archs it knows");
    c->n_archs = n;
    identify(c);
    return LATHE_OK;
}

static lathe_status open_all(struct compiler *c, const char *cuda_home, int driver_version, lathe_error *err)
{
    const int preferred = driver_version / 1000;
    if (strlen(cuda_home) > MOST_HOME_BYTES)
        return lathe__fail(err, LATHE_CUDA,
                           "CUDA_HOME: expected a path of at most %d bytes, given a longer one",
                           MOST_HOME_BYTES);
    TRY(lathe__need_loader("NVRTC (libnvrtc.so)", err));
    struct failure why = {.said = ""};
    c->nvrtc = open_any("libnvrtc", preferred, cuda_home, &why);
    if (!c->nvrtc && why.exists)
        return lathe__fail(
            err, LATHE_CUDA,
            "NVRTC, with which device code is compiled, is there and cannot be opened (%s); the "
            "host device (--device host) and lathe gen still work",
            why.said);
    if (!c->nvrtc)
        return lathe__fail(
            err, LATHE_CUDA,
            "NVRTC (libnvrtc.so.%d or .so.%d, of the CUDA Toolkit, or of pip's nvidia-cuda-nvrtc or "
            "nvidia-cuda-nvrtc-cu12 beside this package) is neither on the loader's path nor in "
            "$CUDA_HOME/lib64 nor in /usr/local/cuda/lib64 (%s), so device code cannot be compiled; "
            "the host device (--device host) and lathe gen still work",
            NEWEST_MAJOR, OLDEST_MAJOR, why.said);
    TRY(resolve_nvrtc(c, err));
    TRY(ask_nvrtc(c, err));
    c->nvfatbin = open_any("libnvfatbin", c->major, cuda_home, &why);
    if (c->nvfatbin && !resolve_nvfatbin(c)) {
        dlclose(c->nvfatbin);
        c->nvfatbin = NULL;
    }
    find_fatbinary(c, cuda_home);
    return LATHE_OK;
}

lathe_status lathe__compiler_open(struct compiler **out, const char *cuda_home, int driver_version,
                                  lathe_error *err)
{
    struct compiler *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c)
        return lathe__fail_memory(err);
    const lathe_status status = open_all(c, cuda_home ? cuda_home : "", driver_version, err);
    if (status != LATHE_OK) {
        lathe__compiler_close(c);
        return status;
    }
    *out = c;
    return LATHE_OK;
}

void lathe__compiler_close(struct compiler *compiler)
{
    if (!compiler)
        return;
    if (compiler->nvfatbin)
        dlclose(compiler->nvfatbin);
    if (compiler->nvrtc)
        dlclose(compiler->nvrtc);
    free(compiler);
}
