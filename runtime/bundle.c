/*
 * bundle.c: cubins and PTX of several archs -> one fatbin, from which the driver picks at load. In: pieces;
 * out: an image, malloc'd, the caller's. In order of preference: nvFatbin, in memory; the toolkit's program
 * `fatbinary`, through a private folder below /tmp; neither: the bare first piece. Which one it
 * was is told to the caller, so that logs and errors can say so.
 */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rt.h"

const char *lathe__image_kind(const unsigned char *image, size_t size)
{
    static const unsigned char fatbin[4] = {0x50, 0xed, 0x55, 0xba};
    static const unsigned char elf[4] = {0x7f, 'E', 'L', 'F'};
    if (size >= 4 && memcmp(image, fatbin, 4) == 0)
        return "fatbin";
    if (size >= 4 && memcmp(image, elf, 4) == 0)
        return "cubin";
    if (size >= 2 && image[0] == '/' && image[1] == '/')
        return "PTX";
    return "unknown";
}

/* ---- nvFatbin ------------------------------------------------------------------------------------- */

static int add_pieces(const struct compiler *c, struct nvfatbin *handle, const struct piece *piece, int n)
{
    int result = 0;
    for (int i = 0; i < n && result == 0; i++) {
        if (piece[i].ptx)
            result = c->nvFatbinAddPTX(handle, piece[i].data, piece[i].size, piece[i].arch, "lathe", "");
        else
            result = c->nvFatbinAddCubin(handle, piece[i].data, piece[i].size, piece[i].arch, "lathe");
    }
    return result;
}

static bool with_library(const struct compiler *c, const struct piece *piece, int n, unsigned char **image,
                         size_t *size)
{
    const char *options[1] = {"-64"};
    struct nvfatbin *handle = NULL;
    size_t bytes = 0;
    unsigned char *data = NULL;
    if (!c->nvfatbin || c->nvFatbinCreate(&handle, options, 1) != 0)
        return false;
    bool ok = add_pieces(c, handle, piece, n) == 0 && c->nvFatbinSize(handle, &bytes) == 0 && bytes > 0;
    if (ok)
        data = malloc(bytes);
    ok = data && c->nvFatbinGet(handle, data) == 0;
    c->nvFatbinDestroy(&handle);
    if (!ok) {
        free(data);
        return false;
    }
    *image = data;
    *size = bytes;
    return true;
}

/* ---- fatbinary ------------------------------------------------------------------------------------ */

enum { MAX_PIECES = 32, TEMP_BYTES = 64 };

static bool write_file(const char *path, const void *data, size_t size)
{
    FILE *f = fopen(path, "wbxe");
    if (!f)
        return false;
    const bool written = fwrite(data, 1, size, f) == size;
    return fclose(f) == 0 && written;
}

static unsigned char *read_file(const char *path, size_t *size)
{
    struct stat status;
    unsigned char *data = NULL;
    FILE *f = fopen(path, "rbe");
    if (!f)
        return NULL;
    if (fstat(fileno(f), &status) == 0 && status.st_size > 0) {
        *size = (size_t)status.st_size;
        data = malloc(*size);
    }
    if (data && fread(data, 1, *size, f) != *size) {
        free(data);
        data = NULL;
    }
    fclose(f);
    return data;
}

static void piece_path(const char *folder, int i, char out[TEMP_BYTES])
{
    snprintf(out, TEMP_BYTES, "%s/%d", folder, i);
}

/* What the program prints goes nowhere: its exit status says enough, and the bare cubin still serves. */
static bool run_quietly(const char *program, char *const *arguments)
{
    char *const no_environment[] = {NULL};
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status = -1;
    if (posix_spawn_file_actions_init(&actions) != 0)
        return false;
    bool ok = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0) == 0 &&
              posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0) == 0 &&
              posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0) == 0 &&
              posix_spawn(&pid, program, &actions, NULL, arguments, no_environment) == 0;
    posix_spawn_file_actions_destroy(&actions);
    while (ok && waitpid(pid, &status, 0) < 0)
        ok = errno == EINTR;
    return ok && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool run_fatbinary(const struct compiler *c, const char *folder, const struct piece *piece, int n)
{
    char program[PATH_BYTES];
    char create[TEMP_BYTES + 16];
    char image[MAX_PIECES][TEMP_BYTES + 64];
    char *arguments[MAX_PIECES + 4];
    char path[TEMP_BYTES];
    char wide[] = "--64";
    int k = 0;
    snprintf(program, sizeof program, "%s", c->fatbinary);
    snprintf(create, sizeof create, "--create=%s/out", folder);
    arguments[k++] = program;
    arguments[k++] = wide;
    arguments[k++] = create;
    for (int i = 0; i < n; i++) {
        piece_path(folder, i, path);
        /* PTX is written without its final zero */
        if (!write_file(path, piece[i].data, piece[i].size - (piece[i].ptx ? 1 : 0)))
            return false;
        snprintf(image[i], sizeof image[i], "--image3=kind=%s,sm=%s,file=%s", piece[i].ptx ? "ptx" : "elf",
                 piece[i].arch, path);
        arguments[k++] = image[i];
    }
    arguments[k] = NULL;
    return run_quietly(program, arguments);
}

static bool with_program(const struct compiler *c, const struct piece *piece, int n, unsigned char **image,
                         size_t *size)
{
    char folder[] = "/tmp/lathe-XXXXXX";
    char path[TEMP_BYTES];
    if (c->fatbinary[0] == '\0' || n > MAX_PIECES || !mkdtemp(folder))
        return false;
    const bool ran = run_fatbinary(c, folder, piece, n);
    snprintf(path, sizeof path, "%s/out", folder);
    *image = ran ? read_file(path, size) : NULL;
    unlink(path);
    for (int i = 0; i < n; i++) {
        piece_path(folder, i, path);
        unlink(path);
    }
    rmdir(folder);
    return *image != NULL;
}

lathe_status lathe__bundle(const struct compiler *compiler, const struct piece *piece, int n,
                           unsigned char **image, size_t *size, const char **how, lathe_error *err)
{
    *how = "by nvFatbin";
    if (with_library(compiler, piece, n, image, size))
        return LATHE_OK;
    *how = "by fatbinary";
    if (with_program(compiler, piece, n, image, size))
        return LATHE_OK;
    *how = piece[0].ptx
               ? "neither nvFatbin nor fatbinary works here, so this is bare PTX of the first arch"
               : "neither nvFatbin nor fatbinary works here, so this is the bare cubin of the first arch";
    *image = malloc(piece[0].size);
    if (!*image)
        return lathe__fail_memory(err);
    memcpy(*image, piece[0].data, piece[0].size);
    *size = piece[0].size;
    return LATHE_OK;
}
