/*
 * packages.c: folders of NVIDIA's libraries that lie beside this one, where a package manager of Python put
 * both: wheels of pip (nvidia-cuda-nvrtc-cu12, nvidia-cuda-nvrtc, nvidia-nccl-cu12) below site-packages, and
 * the lib folder of conda. Looked for from the place of the file that this code is in, so no environment has
 * to be active. Files elsewhere are nobody's neighbours: a library that is not in a folder lathe/lib and a
 * program that is not in a folder bin find none.
 */
#include <glob.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/compile/compile.h"

struct place { /* of the file whose code holds the address */
    uintptr_t address;
    char path[PATH_MAX];
};

static bool holds(const struct dl_phdr_info *info, uintptr_t address)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const uintptr_t begin = (uintptr_t)info->dlpi_addr + (uintptr_t)info->dlpi_phdr[i].p_vaddr;
        if (info->dlpi_phdr[i].p_type == PT_LOAD && address >= begin &&
            address - begin < (uintptr_t)info->dlpi_phdr[i].p_memsz)
            return true;
    }
    return false;
}

/* The program itself has no name here. */
static int find_place(struct dl_phdr_info *info, size_t size, void *data)
{
    struct place *place = data;
    (void)size;
    if (!holds(info, place->address))
        return 0;
    if (!realpath(info->dlpi_name && info->dlpi_name[0] ? info->dlpi_name : "/proc/self/exe", place->path))
        place->path[0] = '\0';
    return 1;
}

/* `path` ends with this folder, which is cut off. */
static bool cut(char *path, const char *folder)
{
    const size_t length = strlen(path);
    const size_t tail = strlen(folder);
    if (length <= tail || strcmp(path + length - tail, folder) != 0)
        return false;
    path[length - tail] = '\0';
    return true;
}

/* What matches first is copied. */
static bool first_match(const char *pattern, char out[PATH_BYTES])
{
    glob_t found = {0};
    const bool any =
        glob(pattern, 0, NULL, &found) == 0 && found.gl_pathc > 0 && strlen(found.gl_pathv[0]) < PATH_BYTES;
    if (any)
        memcpy(out, found.gl_pathv[0], strlen(found.gl_pathv[0]) + 1);
    globfree(&found);
    return any;
}

/* Below a folder of Python's packages: CUDA 13 has one folder of all libraries, CUDA 12 one for each. */
static bool in_packages(const char *packages, const char *name, int major, char out[PATH_BYTES])
{
    char pattern[PATH_MAX + 128];
    snprintf(pattern, sizeof pattern, "%s/nvidia/cu%d/lib/%s.so.%d", packages, major, name, major);
    if (first_match(pattern, out))
        return true;
    snprintf(pattern, sizeof pattern, "%s/nvidia/%s/lib/%s.so.%d", packages,
             strcmp(name, "libnvrtc") == 0  ? "cuda_nvrtc"
             : strcmp(name, "libnccl") == 0 ? "nccl"
                                            : "nvfatbin",
             name, major);
    return first_match(pattern, out);
}

/* Below the prefix of an environment, which has packages of one Python (where lib64 is a folder of its own,
   those without code of a machine are in lib), and conda's libraries. */
static bool in_prefix(const char *prefix, const char *name, int major, char out[PATH_BYTES])
{
    static const char *const packages[] = {"lib/python3*/site-packages", "lib/python3*/dist-packages",
                                           "lib64/python3*/site-packages"};
    char folder[PATH_MAX + 64];
    for (size_t i = 0; i < sizeof packages / sizeof packages[0]; i++) {
        snprintf(folder, sizeof folder, "%s/%s", prefix, packages[i]);
        if (in_packages(folder, name, major, out))
            return true;
    }
    snprintf(folder, sizeof folder, "%s/lib/%s.so.%d", prefix, name, major);
    return first_match(folder, out);
}

bool lathe__own_place(char out[PATH_BYTES])
{
    struct place place = {.path = ""};
    bool (*const self)(char *) = lathe__own_place;
    memcpy(&place.address, &self, sizeof place.address);
    dl_iterate_phdr(find_place, &place);
    snprintf(out, PATH_BYTES, "%s", place.path);
    return place.path[0] && strlen(place.path) < PATH_BYTES;
}

bool lathe__find_packaged(const char *name, int major, char out[PATH_BYTES])
{
    char place[PATH_BYTES];
    char *const slash = lathe__own_place(place) ? strrchr(place, '/') : NULL;
    if (!slash || strpbrk(place, "*?[\\")) /* a pattern would be something else */
        return false;
    *slash = '\0';
    if (cut(place, "/bin"))
        return in_prefix(place, name, major, out);
    if (!cut(place, "/lathe/lib"))
        return false;
    if (in_packages(place, name, major, out))
        return true;
    /* PREFIX/lib/python3.12/site-packages */
    char *const packages = strrchr(place, '/');
    if (packages)
        *packages = '\0';
    char *const python = strrchr(place, '/');
    if (!python || strncmp(python, "/python3", 8) != 0)
        return false;
    *python = '\0';
    return (cut(place, "/lib") || cut(place, "/lib64")) && in_prefix(place, name, major, out);
}
