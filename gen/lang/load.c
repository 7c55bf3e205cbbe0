/*
 * load.c: a spec, by the name of a file, of a shipped spec, or as text, becomes a struct ir. In: the name and
 * text. Out: the traced, checked IR, or diagnostics with file and line.
 */
#include "gen/lang/load.h"
#include "gen/base/diag.h"
#include "gen/base/embedded.h"
#include "gen/ir/rules.h"
#include "gen/ir/spec.h"
#include "runtime/base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/stat.h>

/* "specs/causal.lua" -> "causal", fit for an identifier. */
static void set_name(struct ir *ir, const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *from = slash ? slash + 1 : path;
    size_t n = 0;
    for (; from[n] && from[n] != '.' && n + 1 < sizeof ir->name; n++) {
        char c = from[n];
        bool ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
        ir->name[n] = ok ? c : '_';
    }
    if (n == 0 || (ir->name[0] >= '0' && ir->name[0] <= '9'))
        snprintf(ir->name, sizeof ir->name, "spec");
}

/* Opens without waiting: for a FIFO, open(2) would wait until somebody writes. */
static FILE *open_regular(const char *path, struct diag *diag)
{
    struct stat status;
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        struct nearest nearest = {.word = path};
        const int reason = errno;
        if (!strchr(path, '/'))
            embedded_nearest(&nearest);
        diag_add(diag, path, 0, "cannot be opened: %s%s", strerror(reason), lathe__nearest_text(&nearest));
        return NULL;
    }
    FILE *file = NULL;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
        diag_add(diag, path, 0, "is %s; a spec is a regular file of text",
                 S_ISDIR(status.st_mode) ? "a folder" : "a pipe or a device");
    else if (!(file = fdopen(fd, "rb")))
        diag_add(diag, path, 0, "out of memory");
    if (!file)
        close(fd);
    return file;
}

static char *read_file(const char *path, size_t *size, struct diag *diag)
{
    enum { FILE_BYTES_MAX = 1 << 20 };
    FILE *f = open_regular(path, diag);
    if (!f)
        return NULL;
    char *data = malloc(FILE_BYTES_MAX + 1);
    *size = data ? fread(data, 1, FILE_BYTES_MAX + 1, f) : 0;
    bool bad = !data || ferror(f) != 0;
    bool large = *size > FILE_BYTES_MAX;
    fclose(f);
    if (bad || large) {
        diag_add(diag, path, 0, large ? "is larger than 1 MiB, which no spec is" : "cannot be read");
        free(data);
        return NULL;
    }
    return data;
}

/* The name of a spec stands in comments of generated text, at whose lines' ends it must not end them. */
static bool is_fit_for_comments(const char *name)
{
    for (const char *c = name; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            return false;
    return true;
}

static struct ir *load_text(const char *name, const char *text, size_t size, struct spec_params *params,
                            struct diag *diag)
{
    if (!is_fit_for_comments(name)) {
        diag_add(diag, name, 0,
                 "the name of a spec has no line breaks or other control characters; rename it");
        return NULL;
    }
    struct ir *ir = ir_new();
    if (!ir) {
        diag_add(diag, name, 0, "out of memory");
        return NULL;
    }
    set_name(ir, name);
    const int before = diag->n;
    trace_spec(ir, name, text, size, params, diag);
    const bool good = !ir->failed && diag->n == before && check(ir, diag);
    if (ir->failed) { /* what came after the last operation is no mistake of the spec */
        diag->n = before;
        if (ir->n_nodes < IR_MAX_NODES)
            diag_add(diag, name, 0, "out of memory");
        else
            diag_add(diag, name, 0, "has more than %d operations", IR_MAX_NODES);
    }
    if (good)
        return ir;
    ir_free(ir);
    return NULL;
}

struct ir *spec_load(const char *name, const char *text, size_t size, struct diag *diag)
{
    return spec_load_with(name, text, size, NULL, diag);
}

struct ir *spec_load_with(const char *name, const char *text, size_t size, struct spec_params *params,
                          struct diag *diag)
{
    if (text)
        return load_text(name, text, size, params, diag);
    char shipped[300];
    snprintf(shipped, sizeof shipped, "specs/%s.lua", name);
    const struct embedded *e = strchr(name, '/') || strchr(name, '.') ? NULL : embedded_find(shipped);
    if (e)
        return load_text(shipped, e->data, e->size, params, diag);
    char *data = read_file(name, &size, diag);
    struct ir *ir = data ? load_text(name, data, size, params, diag) : NULL;
    free(data);
    return ir;
}
