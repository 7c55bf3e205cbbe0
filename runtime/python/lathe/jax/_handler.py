"""The handler that XLA calls, in C: it fills data pointers into prepared records and launches the kernel.

It is compiled once for a version of jaxlib, against the C header that jaxlib ships, into the user's cache folder, and
knows nothing of the library: each call carries the address of its launch function.
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
#include <string.h>
#include "xla/ffi/api/c_api.h"

typedef struct { int status; int line; char file[256]; char text[2048]; } error_record;
typedef struct { const char *name; void *data; int dtype; int32_t ndim; const int64_t *shape, *strides; } arg_record;
typedef struct {
    int (*launch)(const void *, const arg_record *, int, void *, void *, error_record *);
    const void *kernel;
    const arg_record *arg; /* tensors that are read, results, then scalars, whose data is there */
    int64_t n, n_read, n_made, has_workspace, on_gpu;
} call_record;
enum { MAX_ARGS = 64 };

static XLA_FFI_Error *fail(const XLA_FFI_CallFrame *frame, const char *text)
{
    XLA_FFI_Error_Create_Args args = {XLA_FFI_Error_Create_Args_STRUCT_SIZE, NULL, text,
                                      XLA_FFI_Error_Code_INVALID_ARGUMENT};
    return frame->api->XLA_FFI_Error_Create(&args);
}

static void *data_of(void *buffer) { return ((XLA_FFI_Buffer *)buffer)->data; }

XLA_FFI_Error *lathe_jax_handler(XLA_FFI_CallFrame *frame)
{
    arg_record arg[MAX_ARGS];
    error_record err;
    void *stream = NULL, *workspace = NULL;
    if (frame->extension_start && frame->extension_start->type == XLA_FFI_Extension_Metadata) {
        XLA_FFI_Metadata *m = ((XLA_FFI_Metadata_Extension *)frame->extension_start)->metadata;
        m->api_version.major_version = XLA_FFI_API_MAJOR;
        m->api_version.minor_version = XLA_FFI_API_MINOR;
        return NULL;
    }
    if (frame->attrs.size != 1 || frame->attrs.types[0] != XLA_FFI_AttrType_SCALAR)
        return fail(frame, "lathe: the call has no record");
    int64_t address;
    memcpy(&address, ((XLA_FFI_Scalar *)frame->attrs.attrs[0])->value, sizeof address);
    const call_record *call = (const call_record *)(intptr_t)address;
    if (call->n > MAX_ARGS || frame->args.size != call->n_read || frame->rets.size != call->n_made + call->has_workspace)
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
        XLA_FFI_Error *error = frame->api->XLA_FFI_Stream_Get(&get);
        if (error)
            return error;
        stream = get.stream;
    }
    return call->launch(call->kernel, arg, (int)call->n, workspace, stream, &err) ? fail(frame, err.text) : NULL;
}
"""


class CallRecord(ctypes.Structure):
    _fields_ = [
        ("launch", ctypes.c_void_p),
        ("kernel", ctypes.c_void_p),
        ("arg", ctypes.c_void_p),
        ("n", ctypes.c_int64),
        ("n_read", ctypes.c_int64),
        ("n_made", ctypes.c_int64),
        ("has_workspace", ctypes.c_int64),
        ("on_gpu", ctypes.c_int64),
    ]


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
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise c.CompileError(f"lathe.jax: its handler does not compile: {done.stderr.strip()[:1500]}")
        made.replace(library)
    return library


@functools.cache
def register() -> str:
    """The name of the handler's target, on CPUs and GPUs."""
    handler = ctypes.CDLL(str(_compile())).lathe_jax_handler
    for platform in ("cpu", "CUDA"):
        jax.ffi.register_ffi_target("lathe", jax.ffi.pycapsule(handler), platform=platform)
    return "lathe"
