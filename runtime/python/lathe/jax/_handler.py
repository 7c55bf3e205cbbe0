"""The handler that XLA calls, in C: it fills data pointers into prepared records and launches the kernel.

A scalar that is an array of the program comes as a buffer of one element, and is read when the kernel is launched: on
a GPU that waits for the stream.

It is compiled once for a version of jaxlib, against the C header that jaxlib ships, into the user's cache folder, and
knows nothing of the library: a record has the address of its launch function. A program names the record of a call by a
digest of all that it was prepared for. A program that another process has compiled, and that was serialized or comes
from a cache, so finds what this process has prepared, or is refused.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import jax
import jaxlib

from .. import _library as c

SOURCE = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "xla/ffi/api/c_api.h"

typedef struct { int status; int line; char file[256]; char text[2048]; } error_record;
typedef struct { const char *name; void *data; int dtype; int32_t ndim; const int64_t *shape, *strides; } arg_record;
/* A scalar that comes as a buffer: what the buffer holds; an integer of more bits becomes an i32 where it fits. */
typedef struct { const char *name; int64_t holds; } scalar_record;
enum { HOLDS_32_BITS, HOLDS_64_BITS, HOLDS_I64, HOLDS_U32, HOLDS_U64 };
typedef union { int32_t i; uint32_t u; int64_t l; uint64_t ul; } number;
typedef struct {
    int (*launch)(const void *, const arg_record *, int, void *, void *, error_record *);
    const void *const *kernel; /* one for all devices, or, where they are several, that of each */
    const int64_t *device;     /* their ordinals */
    int64_t n_devices;
    const arg_record *arg; /* tensors that are read, results, then scalars, whose data is there */
    int64_t n, n_read, n_made, has_workspace, on_gpu, n_scalars;
    int64_t n_zeros; /* operands behind the scalars, which lie where results do that are not written whole */
    const scalar_record *scalar; /* the last ones of the arguments */
    int (*copy)(void *, uint64_t, size_t, void *); /* of the driver, from a GPU: where there are scalars */
    int (*wait)(void *);
} call_record;
enum { MAX_ARGS = 64, BUCKETS = 1024 };

/* What this process has prepared: entries are added by one thread at a time, and none is taken away. */
typedef struct entry {
    const struct entry *next;
    const call_record *call;
    size_t length;
    char name[];
} entry;
static const entry *bucket[BUCKETS];

static const entry **bucket_of(const char *name, size_t length)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)name[i]) * 16777619u;
    return &bucket[hash % BUCKETS];
}

static const call_record *find_call(const char *name, size_t length)
{
    const entry *e = __atomic_load_n(bucket_of(name, length), __ATOMIC_ACQUIRE);
    while (e && (e->length != length || memcmp(e->name, name, length) != 0))
        e = e->next;
    return e ? e->call : NULL;
}

int lathe_jax_enter(const char *name, const call_record *call)
{
    const size_t length = strlen(name);
    if (find_call(name, length))
        return 1;
    entry *e = malloc(sizeof *e + length + 1);
    if (!e)
        return 0;
    e->call = call;
    e->length = length;
    memcpy(e->name, name, length + 1);
    const entry **head = bucket_of(name, length);
    e->next = *head;
    __atomic_store_n(head, e, __ATOMIC_RELEASE);
    return 1;
}

static XLA_FFI_Error *fail(const XLA_FFI_CallFrame *frame, const char *text)
{
    XLA_FFI_Error_Create_Args args = {XLA_FFI_Error_Create_Args_STRUCT_SIZE, NULL, text,
                                      XLA_FFI_Error_Code_INVALID_ARGUMENT};
    return frame->api->XLA_FFI_Error_Create(&args);
}

/* The kernel of the device that runs this; NULL: there is none. */
static const void *find_kernel(const XLA_FFI_CallFrame *frame, const call_record *call, XLA_FFI_Error **error)
{
#ifdef LATHE_HAS_ORDINAL
    if (call->n_devices > 1) {
        XLA_FFI_DeviceOrdinal_Get_Args get = {XLA_FFI_DeviceOrdinal_Get_Args_STRUCT_SIZE, NULL, frame->ctx, 0};
        char text[128];
        if ((*error = frame->api->XLA_FFI_DeviceOrdinal_Get(&get)) != NULL)
            return NULL;
        for (int64_t i = 0; i < call->n_devices; i++)
            if (call->device[i] == get.device_ordinal)
                return call->kernel[i];
        snprintf(text, sizeof text, "lathe: device %d is none of those that kernels were prepared for",
                 (int)get.device_ordinal);
        *error = fail(frame, text);
        return NULL;
    }
#endif
    (void)frame, (void)error;
    return call->kernel[0];
}

static void *data_of(void *buffer) { return ((XLA_FFI_Buffer *)buffer)->data; }

static size_t bytes_of(const scalar_record *scalar)
{
    return scalar->holds == HOLDS_32_BITS || scalar->holds == HOLDS_U32 ? 4 : 8;
}

static int narrow(number *value, int64_t holds)
{
    const int fits = holds == HOLDS_I64   ? value->l >= INT32_MIN && value->l <= INT32_MAX
                     : holds == HOLDS_U32 ? value->u <= INT32_MAX
                     : holds == HOLDS_U64 ? value->ul <= INT32_MAX
                                          : 1;
    if (fits && (holds == HOLDS_I64 || holds == HOLDS_U64))
        value->i = (int32_t)value->l;
    return fits;
}

static XLA_FFI_Error *read_scalars(const XLA_FFI_CallFrame *frame, const call_record *call, void *stream, number *value)
{
    char text[256];
    int error = 0;
    for (int64_t i = 0; i < call->n_scalars && !error; i++) {
        void *data = data_of(frame->args.args[call->n_read + i]);
        if (call->on_gpu)
            error = call->copy(&value[i], (uint64_t)(uintptr_t)data, bytes_of(&call->scalar[i]), stream);
        else
            memcpy(&value[i], data, bytes_of(&call->scalar[i]));
    }
    if (call->on_gpu && call->n_scalars > 0 && !error)
        error = call->wait(stream);
    if (error) {
        snprintf(text, sizeof text, "lathe: scalars could not be read from the GPU (error %d of the driver)", error);
        return fail(frame, text);
    }
    for (int64_t i = 0; i < call->n_scalars; i++) {
        const number given = value[i];
        const int64_t holds = call->scalar[i].holds;
        if (!narrow(&value[i], holds)) {
            const char *sign = holds == HOLDS_I64 && given.l < 0 ? "-" : "";
            const uint64_t size = holds == HOLDS_U32 ? given.u : *sign ? -given.ul : given.ul;
            snprintf(text, sizeof text,
                     "argument '%s': expected a whole number from -2147483648 to 2147483647, given %s%llu",
                     call->scalar[i].name, sign, (unsigned long long)size);
            return fail(frame, text);
        }
    }
    return NULL;
}

/* The record of a call; NULL: an error says why there is none. */
static const call_record *record_of(const XLA_FFI_CallFrame *frame, int on_gpu, XLA_FFI_Error **error)
{
    char text[512];
    if (frame->attrs.size != 1 || frame->attrs.types[0] != XLA_FFI_AttrType_STRING) {
        *error = fail(frame, "lathe: the call has no record");
        return NULL;
    }
    const XLA_FFI_ByteSpan *name = frame->attrs.attrs[0];
    const call_record *call = find_call(name->ptr, name->len);
    if (!call) {
        snprintf(text, sizeof text,
                 "lathe: the program was compiled in another process, and its call '%.*s' is not prepared in this one; "
                 "compile it here, or lower the same function for the same shapes first",
                 (int)name->len, name->ptr);
        *error = fail(frame, text);
    } else if ((call->on_gpu != 0) != on_gpu) {
        snprintf(text, sizeof text,
                 "lathe: the call was prepared for %s, as the default backend of JAX says, and runs on %s; put its "
                 "arrays there, or name the other backend in JAX_PLATFORMS",
                 call->on_gpu ? "a GPU" : "the CPU", on_gpu ? "a GPU" : "the CPU");
        *error = fail(frame, text);
        call = NULL;
    }
    return call;
}

static XLA_FFI_Error *run(XLA_FFI_CallFrame *frame, int on_gpu)
{
    arg_record arg[MAX_ARGS];
    number scalar[MAX_ARGS];
    XLA_FFI_Error *error = NULL;
    error_record err;
    void *stream = NULL, *workspace = NULL;
    if (frame->extension_start && frame->extension_start->type == XLA_FFI_Extension_Metadata) {
        XLA_FFI_Metadata *m = ((XLA_FFI_Metadata_Extension *)frame->extension_start)->metadata;
        m->api_version.major_version = XLA_FFI_API_MAJOR;
        m->api_version.minor_version = XLA_FFI_API_MINOR;
        return NULL;
    }
    const call_record *call = record_of(frame, on_gpu, &error);
    if (!call)
        return error;
    const void *kernel = find_kernel(frame, call, &error);
    if (!kernel)
        return error;
    if (call->n > MAX_ARGS || frame->args.size != call->n_read + call->n_scalars + call->n_zeros ||
         frame->rets.size != call->n_made + call->has_workspace)
        return fail(frame, "lathe: the call has other operands than its record");
    memcpy(arg, call->arg, (size_t)call->n * sizeof arg[0]);
    for (int64_t i = 0; i < call->n_read; i++)
        arg[i].data = data_of(frame->args.args[i]);
    for (int64_t i = 0; i < call->n_made; i++)
        arg[call->n_read + i].data = data_of(frame->rets.rets[i]);
    if (call->has_workspace)
        workspace = data_of(frame->rets.rets[call->n_made]);
    if (call->on_gpu) {
        XLA_FFI_Stream_Get_Args get = {XLA_FFI_Stream_Get_Args_STRUCT_SIZE, NULL, frame->ctx, NULL};
        if ((error = frame->api->XLA_FFI_Stream_Get(&get)) != NULL)
            return error;
        stream = get.stream;
    }
    if ((error = read_scalars(frame, call, stream, scalar)) != NULL)
        return error;
    for (int64_t i = 0; i < call->n_scalars; i++)
        arg[call->n - call->n_scalars + i].data = &scalar[i];
    return call->launch(kernel, arg, (int)call->n, workspace, stream, &err) ? fail(frame, err.text) : NULL;
}

XLA_FFI_Error *lathe_jax_on_cpu(XLA_FFI_CallFrame *frame) { return run(frame, 0); }
XLA_FFI_Error *lathe_jax_on_gpu(XLA_FFI_CallFrame *frame) { return run(frame, 1); }
"""


class CallRecord(ctypes.Structure):
    _fields_ = [
        ("launch", ctypes.c_void_p),
        ("kernel", ctypes.c_void_p),
        ("device", ctypes.c_void_p),
        ("n_devices", ctypes.c_int64),
        ("arg", ctypes.c_void_p),
        ("n", ctypes.c_int64),
        ("n_read", ctypes.c_int64),
        ("n_made", ctypes.c_int64),
        ("has_workspace", ctypes.c_int64),
        ("on_gpu", ctypes.c_int64),
        ("n_scalars", ctypes.c_int64),
        ("n_zeros", ctypes.c_int64),
        ("scalar", ctypes.c_void_p),
        ("copy", ctypes.c_void_p),
        ("wait", ctypes.c_void_p),
    ]


class ScalarRecord(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("holds", ctypes.c_int64)]


# What buffers of scalars may hold, by their dtype.
HOLDS = {"int32": 0, "float32": 0, "float64": 1, "int64": 2, "uint32": 3, "uint64": 4}


def driver_functions() -> tuple[int, int]:
    """Addresses of the functions of the CUDA driver that copy from a GPU and wait for a stream."""
    driver = ctypes.CDLL("libcuda.so.1")
    functions = driver.cuMemcpyDtoHAsync_v2, driver.cuStreamSynchronize
    copy, wait = (ctypes.cast(f, ctypes.c_void_p).value for f in functions)
    return copy, wait


@functools.cache
def tells_devices() -> bool:
    """Does this jaxlib tell a handler which device it runs on?"""
    return "XLA_FFI_DeviceOrdinal_Get" in (Path(jax.ffi.include_dir()) / "xla/ffi/api/c_api.h").read_text()


def _folder() -> Path:
    base = os.environ.get("LATHE_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(base) / "lathe-jax"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _compile() -> Path:
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not compiler:
        raise c.CompileError("lathe.jax: its handler is compiled once against jaxlib's header, and there is no C "
                             "compiler (cc); install one, or name it in CC")  # fmt: skip
    digest = hashlib.sha256(f"{jaxlib.__version__} {SOURCE}".encode()).hexdigest()[:16]
    library = _folder() / f"handler-{digest}.so"
    if library.exists():
        return library
    with tempfile.TemporaryDirectory(dir=library.parent) as work:
        source, made = Path(work) / "handler.c", Path(work) / "handler.so"
        source.write_text(SOURCE)
        command = [compiler, "-O2", "-shared", "-fPIC", "-I", jax.ffi.include_dir(), str(source), "-o", str(made)]
        command += ["-DLATHE_HAS_ORDINAL"] * tells_devices()
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise c.CompileError(f"lathe.jax: its handler does not compile: {done.stderr.strip()[:1500]}")
        made.replace(library)
    return library


@functools.cache
def _handler() -> ctypes.CDLL:
    library = ctypes.CDLL(str(_compile()))
    library.lathe_jax_enter.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
    return library


@functools.cache
def register() -> str:
    """The name of the handler's target, on CPUs and GPUs."""
    for platform, function in (("cpu", _handler().lathe_jax_on_cpu), ("CUDA", _handler().lathe_jax_on_gpu)):
        jax.ffi.register_ffi_target("lathe", jax.ffi.pycapsule(function), platform=platform)
    return "lathe"


def enter(name: str, record: CallRecord) -> None:
    """From here on the calls of that name have this record, which lives as long as the process; the first one stays."""
    if not _handler().lathe_jax_enter(name.encode(), ctypes.addressof(record)):
        raise c.OutOfMemoryError("lathe.jax: no memory for the record of a call")
