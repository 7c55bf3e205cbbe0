/*
 * nccl.c: ranks that NCCL connects, opened at run time: no header of it is needed to build. In: an id or a
 * communicator. Out: the functions of a transport. Places and sizes that differ between ranks are groups of
 * sends and receives; where they do not, NCCL's own collectives.
 */
#include "lathe_dist.h"
#include "runtime/base/base.h"
#include "runtime/compile/compile.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct nccl_id { /* ncclUniqueId */
    char bytes[LATHE_NCCL_ID_BYTES];
};
struct ncclComm;

enum { NCCL_UINT8 = 1, NCCL_FLOAT32 = 7, NCCL_FLOAT64 = 8, NCCL_SUM = 0 };

/* X(name, parameters): all of them are in NCCL since 2.7. */
#define NCCL_MAP(X)                                                                                          \
    X(ncclGetUniqueId, (struct nccl_id * id))                                                                \
    X(ncclCommInitRank, (struct ncclComm * *comm, int ranks, struct nccl_id id, int rank))                   \
    X(ncclCommDestroy, (struct ncclComm * comm))                                                             \
    X(ncclCommAbort, (struct ncclComm * comm))                                                               \
    X(ncclCommGetAsyncError, (struct ncclComm * comm, int *result))                                          \
    X(ncclGroupStart, (void))                                                                                \
    X(ncclGroupEnd, (void))                                                                                  \
    X(ncclSend,                                                                                              \
      (const void *from, size_t count, int type, int peer, struct ncclComm *comm, lathe_stream stream))      \
    X(ncclRecv, (void *to, size_t count, int type, int peer, struct ncclComm *comm, lathe_stream stream))    \
    X(ncclAllGather,                                                                                         \
      (const void *from, void *to, size_t count, int type, struct ncclComm *comm, lathe_stream stream))      \
    X(ncclReduceScatter, (const void *from, void *to, size_t count, int type, int op, struct ncclComm *comm, \
                          lathe_stream stream))                                                              \
    X(ncclReduce, (const void *from, void *to, size_t count, int type, int op, int root,                     \
                   struct ncclComm *comm, lathe_stream stream))

struct entries {
#define NCCL_ENTRY(name, params) int(*name) params;
    NCCL_MAP(NCCL_ENTRY)
#undef NCCL_ENTRY
    const char *(*ncclGetErrorString)(int result);
};

struct lathe_nccl {
    struct entries f;
    struct ncclComm *comm; /* NULL: aborted */
    bool own;
    int32_t rank, ranks;
};

/* ---- the library ----------------------------------------------------------------------------------------
 */

static bool find(void *library, const char *name, void *entry)
{
    void *address = dlsym(library, name);
    memcpy(entry, &address, sizeof address);
    return address != NULL;
}

/* By its soname, which also finds the one that torch has loaded, then among the packages of Python beside
   this library. It stays mapped, as every library that was opened. */
static void *open_file(char said[PATH_BYTES])
{
    enum { FLAGS = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE };
    char path[PATH_BYTES];
    void *library = dlopen("libnccl.so.2", FLAGS);
    if (!library)
        snprintf(said, PATH_BYTES, "%s", dlerror());
    if (!library && lathe__find_packaged("libnccl", 2, path)) {
        library = dlopen(path, FLAGS);
        if (!library)
            snprintf(said, PATH_BYTES, "%s", dlerror());
    }
    return library;
}

static lathe_status open_library(struct entries *f, lathe_error *err)
{
    const char *missing = NULL;
    char said[PATH_BYTES];
    TRY(lathe__need_loader("libnccl.so.2", err));
    void *library = open_file(said);
    if (!library)
        return lathe__fail(
            err, LATHE_CUDA,
            "NCCL cannot be opened: %s; install it (libnccl2, or nvidia-nccl of pip, beside this package or "
            "with its folder in LD_LIBRARY_PATH); ranks of one process on the host device need none: "
            "lathe_threads_create",
            said);
#define NCCL_ENTRY(name, params) missing = find(library, #name, (void *)&f->name) ? missing : #name;
    NCCL_MAP(NCCL_ENTRY)
#undef NCCL_ENTRY
    missing =
        find(library, "ncclGetErrorString", (void *)&f->ncclGetErrorString) ? missing : "ncclGetErrorString";
    if (missing)
        return lathe__fail(err, LATHE_CUDA, "libnccl.so.2 has no entry %s: expected NCCL 2.7 or newer",
                           missing);
    return LATHE_OK;
}

static lathe_status nccl_check(const struct entries *f, int result, const char *call, lathe_error *err)
{
    return result == 0 ? LATHE_OK
                       : lathe__fail(err, LATHE_CUDA, "%s: %s", call, f->ncclGetErrorString(result));
}

lathe_status lathe_nccl_id(void *id, lathe_error *err)
{
    struct entries f;
    struct nccl_id fresh;
    if (!id)
        return lathe__fail(err, LATHE_ARG, "nccl: id: expected a place of %d bytes, given NULL",
                           LATHE_NCCL_ID_BYTES);
    TRY(open_library(&f, err));
    TRY(nccl_check(&f, f.ncclGetUniqueId(&fresh), "ncclGetUniqueId", err));
    memcpy(id, &fresh, sizeof fresh);
    return LATHE_OK;
}

static lathe_status connect(lathe_nccl *n, const void *id, void *comm, lathe_error *err)
{
    struct nccl_id all;
    TRY(open_library(&n->f, err));
    n->comm = comm;
    n->own = !comm;
    if (comm)
        return LATHE_OK;
    memcpy(&all, id, sizeof all);
    return nccl_check(&n->f, n->f.ncclCommInitRank(&n->comm, n->ranks, all, n->rank), "ncclCommInitRank",
                      err);
}

lathe_status lathe_nccl_open(lathe_nccl **out, const void *id, void *comm, int32_t rank, int32_t ranks,
                             lathe_error *err)
{
    if (out)
        *out = NULL;
    if (!out || (!id && !comm))
        return lathe__fail(err, LATHE_ARG, "nccl: %s, given NULL",
                           out ? "id: expected one of lathe_nccl_id, or a communicator"
                               : "out: expected a place for the object");
    if (ranks < 1 || ranks > LATHE_MOST_RANKS || rank < 0 || rank >= ranks)
        return lathe__fail(err, LATHE_ARG,
                           "nccl: expected rank 0 to ranks - 1 of 1 to %d ranks, given %d of %d",
                           LATHE_MOST_RANKS, rank, ranks);
    lathe_nccl *n = calloc(1, sizeof *n);
    if (!n)
        return lathe__fail_memory(err);
    n->rank = rank;
    n->ranks = ranks;
    const lathe_status status = connect(n, id, comm, err);
    if (status == LATHE_OK)
        *out = n;
    else
        free(n);
    return status;
}

void lathe_nccl_close(lathe_nccl *nccl)
{
    if (!nccl)
        return;
    if (nccl->own && nccl->comm)
        (void)nccl->f.ncclCommDestroy(nccl->comm);
    free(nccl);
}

/* ---- the functions of a transport ---------------------------------------------------------------------- */

/* What another rank or the wire has done since; ahead of every call. */
static lathe_status alive(const lathe_nccl *n, lathe_error *err)
{
    int result = 0;
    if (!n->comm)
        return lathe__fail(err, LATHE_CUDA,
                           "nccl: this rank has failed before, and its communicator is aborted");
    TRY(nccl_check(&n->f, n->f.ncclCommGetAsyncError(n->comm, &result), "ncclCommGetAsyncError", err));
    return nccl_check(&n->f, result, "nccl: another rank or the network has failed", err);
}

/* Sends and receives of a group: bytes 0 are none. */
static lathe_status send(const lathe_nccl *n, const void *from, size_t place, size_t bytes, int32_t to,
                         lathe_stream stream, lathe_error *err)
{
    if (bytes == 0)
        return LATHE_OK;
    return nccl_check(&n->f,
                      n->f.ncclSend((const char *)from + place, bytes, NCCL_UINT8, to, n->comm, stream),
                      "ncclSend", err);
}

static lathe_status receive(const lathe_nccl *n, void *to, size_t place, size_t bytes, int32_t from,
                            lathe_stream stream, lathe_error *err)
{
    if (bytes == 0)
        return LATHE_OK;
    return nccl_check(&n->f, n->f.ncclRecv((char *)to + place, bytes, NCCL_UINT8, from, n->comm, stream),
                      "ncclRecv", err);
}

/* A group is closed also where a call inside of it failed. */
static lathe_status close_group(const lathe_nccl *n, lathe_status status, lathe_error *err)
{
    const int result = n->f.ncclGroupEnd();
    return status != LATHE_OK ? status : nccl_check(&n->f, result, "ncclGroupEnd", err);
}

/* All ranks have as much, one behind the other. */
static bool is_even(const lathe_nccl *n, const size_t *place, const size_t *size)
{
    for (int32_t r = 0; r < n->ranks; r++)
        if (size[r] != size[0] || place[r] != (size_t)r * size[0])
            return false;
    return true;
}

static lathe_status all_gather(void *user, void *to, const size_t *place, const size_t *bytes,
                               const void *from, lathe_stream stream, lathe_error *err)
{
    lathe_nccl *n = user;
    lathe_status status = LATHE_OK;
    TRY(alive(n, err));
    if (is_even(n, place, bytes))
        return nccl_check(&n->f, n->f.ncclAllGather(from, to, bytes[0], NCCL_UINT8, n->comm, stream),
                          "ncclAllGather", err);
    TRY(nccl_check(&n->f, n->f.ncclGroupStart(), "ncclGroupStart", err));
    for (int32_t r = 0; r < n->ranks && status == LATHE_OK; r++) {
        if (r == n->rank && (const char *)to + place[r] == (const char *)from)
            continue; /* its own bytes lie in their place */
        status = send(n, from, 0, bytes[n->rank], r, stream, err);
        if (status == LATHE_OK)
            status = receive(n, to, place[r], bytes[r], r, stream, err);
    }
    return close_group(n, status, err);
}

static lathe_status all_to_all(void *user, void *to, const size_t *to_place, const size_t *to_bytes,
                               const void *from, const size_t *from_place, const size_t *from_bytes,
                               lathe_stream stream, lathe_error *err)
{
    lathe_nccl *n = user;
    lathe_status status = LATHE_OK;
    TRY(alive(n, err));
    TRY(nccl_check(&n->f, n->f.ncclGroupStart(), "ncclGroupStart", err));
    for (int32_t r = 0; r < n->ranks && status == LATHE_OK; r++) {
        status = send(n, from, from_place[r], from_bytes[r], r, stream, err);
        if (status == LATHE_OK)
            status = receive(n, to, to_place[r], to_bytes[r], r, stream, err);
    }
    return close_group(n, status, err);
}

static lathe_status exchange(void *user, void *to, size_t to_bytes, int32_t from_rank, const void *from,
                             size_t from_bytes, int32_t to_rank, lathe_stream stream, lathe_error *err)
{
    lathe_nccl *n = user;
    TRY(alive(n, err));
    TRY(nccl_check(&n->f, n->f.ncclGroupStart(), "ncclGroupStart", err));
    lathe_status status = send(n, from, 0, from_bytes, to_rank, stream, err);
    if (status == LATHE_OK)
        status = receive(n, to, 0, to_bytes, from_rank, stream, err);
    return close_group(n, status, err);
}

static lathe_status reduce_scatter(void *user, void *to, const void *from, const size_t *place,
                                   const size_t *count, lathe_dtype dtype, lathe_stream stream,
                                   lathe_error *err)
{
    lathe_nccl *n = user;
    const int type = dtype == LATHE_F64 ? NCCL_FLOAT64 : NCCL_FLOAT32;
    const size_t bytes = lathe_dtype_size(dtype);
    int result = 0;
    TRY(alive(n, err));
    if (is_even(n, place, count))
        return nccl_check(&n->f, n->f.ncclReduceScatter(from, to, count[0], type, NCCL_SUM, n->comm, stream),
                          "ncclReduceScatter", err);
    TRY(nccl_check(&n->f, n->f.ncclGroupStart(), "ncclGroupStart", err));
    for (int32_t r = 0; r < n->ranks && result == 0; r++)
        if (count[r] > 0)
            result = n->f.ncclReduce((const char *)from + place[r] * bytes, to, count[r], type, NCCL_SUM, r,
                                     n->comm, stream);
    return close_group(n, nccl_check(&n->f, result, "ncclReduce", err), err);
}

static void fail(void *user, lathe_status status, const char *why)
{
    lathe_nccl *n = user;
    (void)status;
    (void)why;
    if (n->comm)
        (void)n->f.ncclCommAbort(n->comm);
    n->comm = NULL;
}

lathe_status lathe_nccl_rank(lathe_nccl *nccl, lathe_transport *out, lathe_error *err)
{
    if (!nccl || !out)
        return lathe__fail(err, LATHE_ARG, "nccl: %s, given NULL",
                           nccl ? "out: expected a place for the transport"
                                : "expected what lathe_nccl_open made");
    *out = (lathe_transport){.user = nccl,
                             .rank = nccl->rank,
                             .ranks = nccl->ranks,
                             .all_gather = all_gather,
                             .all_to_all = all_to_all,
                             .exchange = exchange,
                             .reduce_scatter = reduce_scatter,
                             .fail = fail};
    return LATHE_OK;
}
