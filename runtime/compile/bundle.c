/*
 * bundle.c: cubins and PTX of several archs -> one fatbin, from which the driver picks at load. In: pieces;
 * out: an image, malloc'd, the caller's. In order of preference: nvFatbin, in memory; the toolkit's program
 * `fatbinary`, on files in memory; neither: the bare first piece. Which one it
 * was is told to the caller, so that logs and errors can say so.
 */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/compile/compile.h"

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

enum { MAX_PIECES = 32, NAME_BYTES = 32 };

/* The program works on files that have no name, so nothing is left behind however it or we end. */
struct memory_files {
    int n;
    int fd[MAX_PIECES + 1]; /* the result, then the pieces */
};

static bool add_file(struct memory_files *files, const void *data, size_t size)
{
    const int fd = memfd_create("lathe", MFD_CLOEXEC);
    if (fd < 0)
        return false;
    files->fd[files->n++] = fd;
    return lathe__write_all(fd, data, size) == 0;
}

static void close_files(const struct memory_files *files)
{
    for (int i = 0; i < files->n; i++)
        close(files->fd[i]);
}

static unsigned char *read_file(int fd, size_t *size)
{
    struct stat status;
    if (fstat(fd, &status) != 0 || status.st_size <= 0)
        return NULL;
    *size = (size_t)status.st_size;
    unsigned char *data = malloc(*size);
    if (data && lathe__read_all(fd, data, *size) != 0) {
        free(data);
        return NULL;
    }
    return data;
}

/* In the program, which has them under the same numbers; to other programs they are closed. */
static void file_name(int fd, char out[NAME_BYTES])
{
    snprintf(out, NAME_BYTES, "/proc/self/fd/%d", fd);
}

static bool set_up(posix_spawn_file_actions_t *actions, const struct memory_files *files)
{
    bool ok = posix_spawn_file_actions_addopen(actions, 0, "/dev/null", O_RDONLY, 0) == 0 &&
              posix_spawn_file_actions_addopen(actions, 1, "/dev/null", O_WRONLY, 0) == 0 &&
              posix_spawn_file_actions_addopen(actions, 2, "/dev/null", O_WRONLY, 0) == 0;
    for (int i = 0; i < files->n && ok; i++)
        ok = posix_spawn_file_actions_adddup2(actions, files->fd[i], files->fd[i]) == 0;
    return ok;
}

/* What the program prints goes nowhere: its exit status says enough, and the bare cubin still serves. */
static bool run_quietly(const char *program, char *const *arguments, const struct memory_files *files)
{
    char *const no_environment[] = {NULL};
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status = -1;
    if (posix_spawn_file_actions_init(&actions) != 0)
        return false;
    bool ok =
        set_up(&actions, files) && posix_spawn(&pid, program, &actions, NULL, arguments, no_environment) == 0;
    posix_spawn_file_actions_destroy(&actions);
    while (ok && waitpid(pid, &status, 0) < 0)
        ok = errno == EINTR;
    return ok && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool run_fatbinary(const struct compiler *c, struct memory_files *files, const struct piece *piece,
                          int n)
{
    char program[PATH_BYTES];
    char create[NAME_BYTES + 16];
    char image[MAX_PIECES][NAME_BYTES + 64];
    char *arguments[MAX_PIECES + 4];
    char name[NAME_BYTES];
    char wide[] = "--64";
    int k = 0;
    if (!add_file(files, "", 0))
        return false;
    snprintf(program, sizeof program, "%s", c->fatbinary);
    file_name(files->fd[0], name);
    snprintf(create, sizeof create, "--create=%s", name);
    arguments[k++] = program;
    arguments[k++] = wide;
    arguments[k++] = create;
    for (int i = 0; i < n; i++) {
        /* PTX is written without its final zero */
        if (!add_file(files, piece[i].data, piece[i].size - (piece[i].ptx ? 1 : 0)))
            return false;
        file_name(files->fd[i + 1], name);
        snprintf(image[i], sizeof image[i], "--image3=kind=%s,sm=%s,file=%s", piece[i].ptx ? "ptx" : "elf",
                 piece[i].arch, name);
        arguments[k++] = image[i];
    }
    arguments[k] = NULL;
    return run_quietly(program, arguments, files);
}

static bool with_program(const struct compiler *c, const struct piece *piece, int n, unsigned char **image,
                         size_t *size)
{
    struct memory_files files = {.n = 0};
    if (c->fatbinary[0] == '\0' || n > MAX_PIECES)
        return false;
    const bool ran = run_fatbinary(c, &files, piece, n);
    *image = ran ? read_file(files.fd[0], size) : NULL;
    close_files(&files);
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

lathe_status lathe__image_make(const struct compiler *compiler, struct piece *piece, int n,
                               unsigned char **image, size_t *size, const char **how, lathe_error *err)
{
    if (n != 1 || piece[0].ptx)
        return lathe__bundle(compiler, piece, n, image, size, how, err);
    *image = (unsigned char *)piece[0].data;
    *size = piece[0].size;
    *how = "as it is";
    piece[0].data = NULL;
    return LATHE_OK;
}
