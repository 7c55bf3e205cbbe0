"""The shared library, found and opened, with the records of its headers.

In: LATHE_LIBRARY, or the file that the wheel carries. Out: functions with their prototypes. A call that fails
raises the exception of its status, with the library's sentence.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, byref, c_char, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_uint, c_void_p
from pathlib import Path

FORWARD, BACKWARD, COMBINE = 0, 1, 2
DEVICE_AUTO, DEVICE_HOST = -2, -1
BATCH_INVARIANT = 2
TENSOR, RESULT, SCALAR = 0, 1, 2
MAX_DIMS = 5

NONE, F32, F16, BF16, I32, U8, F64, F8_E4M3, F8_E5M2, I8 = range(10)
NARROW = (F8_E4M3, F8_E5M2, I8)
REMARK_NONE, REMARK_WARNING, REMARK_UNSEEN = range(3)
DTYPE_NAMES = ("none", "f32", "f16", "bf16", "i32", "u8", "f64", "f8e4m3", "f8e5m2", "i8")
DTYPE_BYTES = (0, 4, 2, 2, 4, 1, 8, 1, 1, 1)


class LatheError(Exception):
    """What the library refuses, in its own sentence. `file` and `line` are the spec's, where it has them."""

    def __init__(self, text: str, file: str = "", line: int = 0):
        super().__init__(text)
        self.file = file
        self.line = line


class SpecError(LatheError):
    """The spec is wrong: up to ten mistakes, each with its line and what to write instead."""


class ArgumentError(LatheError, ValueError):
    """An argument is wrong: its name, what was expected and what was given."""


class UnsupportedError(LatheError):
    """No template covers this spec and problem: the reason of each, a line each."""


class CompileError(LatheError):
    """Device code did not compile, or offline mode forbids compiling it."""


class CacheError(LatheError):
    """The kernel cache cannot be read or written."""


class CudaError(LatheError, RuntimeError):
    """A CUDA call failed, or a library of CUDA is missing."""


class OutOfMemoryError(LatheError, MemoryError):
    """Out of host memory."""


_EXCEPTIONS = {
    1: SpecError, 2: ArgumentError, 3: UnsupportedError, 4: CompileError,
    5: CacheError, 6: CudaError, 7: OutOfMemoryError,
}  # fmt: skip


class Error(ctypes.Structure):
    _fields_ = [("status", c_int), ("line", c_int), ("file", c_char * 256), ("text", c_char * 2048)]


class Arg(ctypes.Structure):
    _fields_ = [
        ("name", c_char_p),
        ("data", c_void_p),
        ("dtype", c_int),
        ("ndim", c_int32),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
    ]


ARG_WORDS = ctypes.sizeof(Arg) // 8  # an array of records seen as 64-bit words: data is word 1 of each


class Options(ctypes.Structure):
    _fields_ = [
        ("device", c_int),
        ("cache_dir", c_char_p),
        ("cache_bytes", ctypes.c_uint64),
        ("cache_read_only", c_int),
        ("log", c_void_p),
        ("log_user", c_void_p),
        ("offline", c_int),
        ("system_cache_dir", c_char_p),
        ("deterministic", c_int),
    ]


class Dim(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("times", c_int32), ("plus", c_int32)]


class ArgInfo(ctypes.Structure):
    _fields_ = [
        ("name", c_char_p),
        ("role", c_int),
        ("dtype", c_int),
        ("shares_dtype", c_int32),
        ("takes_halves", c_int32),
        ("optional", c_int32),
        ("leading_optional", c_int32),
        ("is_input", c_int32),
        ("is_list", c_int32),
        ("alias", c_char_p),
        ("default_value", c_double),
        ("ndim", c_int32),
        ("dim", Dim * MAX_DIMS),
        ("kept_by", c_char_p),
    ]


class SizeInfo(ctypes.Structure):
    _fields_ = [
        ("name", c_char_p),
        ("same_as", c_char_p),
        ("is_compiled_in", c_int32),
        ("least", c_int32),
        ("most", c_int32),
        ("step", c_int32),
    ]


class Param(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("value", c_double)]


class ParamInfo(ctypes.Structure):
    _fields_ = [
        ("name", c_char_p),
        ("value", c_double),
        ("default_value", c_double),
        ("is_integer", c_int32),
        ("line", c_int32),
    ]


class ProofRecord(ctypes.Structure):
    _fields_ = [
        ("name", c_char_p),
        ("applies", c_int32),
        ("passed", c_int32),
        ("cut_short", c_int32),
        ("remark", c_int32),
        ("error", c_double),
        ("bound", c_double),
        ("line", c_int32),
        ("refused", c_int32),
        ("note", c_char_p),
    ]


PROOF_FN = ctypes.CFUNCTYPE(None, c_void_p, POINTER(ProofRecord))

_ARGS = [POINTER(Arg), c_int]
_PROTOTYPES = {
    "lathe_version": (c_char_p, []),
    "lathe_ctx_create": (c_int, [POINTER(c_void_p), POINTER(Options), POINTER(Error)]),
    "lathe_ctx_destroy": (None, [c_void_p]),
    "lathe_ctx_device": (c_int, [c_void_p]),
    "lathe_ctx_device_name": (c_char_p, [c_void_p]),
    "lathe_ctx_arch": (c_char_p, [c_void_p]),
    "lathe_spec_destroy": (None, [c_void_p]),
    "lathe_spec_arg": (c_int, [c_void_p, c_int, c_int, POINTER(ArgInfo)]),
    "lathe_spec_size": (c_int, [c_void_p, c_int, c_int, POINTER(SizeInfo)]),
    "lathe_spec_counts": (c_int, [c_void_p, POINTER(c_int)]),
    "lathe_spec_absent": (c_char_p, [c_void_p, c_int, c_char_p]),
    "lathe_spec_name": (c_char_p, [c_void_p]),
    "lathe_spec_kind": (c_char_p, [c_void_p]),
    "lathe_supported": (c_int, [c_void_p, c_void_p, c_int, *_ARGS, POINTER(Error)]),
    "lathe_kernel_get": (c_int, [POINTER(c_void_p), c_void_p, c_void_p, c_int, *_ARGS, POINTER(Error)]),
    "lathe_kernel_release": (None, [c_void_p]),
    "lathe_kernel_info": (c_char_p, [c_void_p]),
    "lathe_workspace_size": (c_int, [POINTER(c_size_t), c_void_p, *_ARGS, POINTER(Error)]),
    "lathe_launch": (c_int, [c_void_p, c_void_p, c_int, c_void_p, c_void_p, c_void_p]),  # addresses: quicker
    "lathe_source": (c_int, [POINTER(c_void_p), c_void_p, c_int, c_char_p, *_ARGS, POINTER(Error)]),
    "lathe_explain": (c_int, [POINTER(c_void_p), c_void_p, c_int, c_char_p, *_ARGS, c_int, POINTER(Error)]),
    "lathe_spec_open": (
        c_int,
        [POINTER(c_void_p), c_char_p, c_char_p, c_size_t, POINTER(Param), c_int, POINTER(Error)],
    ),
    "lathe_spec_param": (c_int, [c_void_p, c_int, POINTER(ParamInfo)]),
    "lathe_report": (c_int, [POINTER(c_void_p), POINTER(Error)]),
    "lathe_text_free": (None, [c_void_p]),
    "lathe_prove": (c_int, [c_void_p, c_uint, PROOF_FN, c_void_p, POINTER(Error)]),
}  # fmt: skip


def _path() -> str:
    asked = os.environ.get("LATHE_LIBRARY")
    if asked:
        return asked
    beside = Path(__file__).parent / "lib"
    found = sorted(beside.glob("liblathe.so*"))
    if not found:
        raise ImportError(
            f"lathe: no shared library in {beside}; install the package with `pip install ./runtime/python`, "
            "or name a liblathe.so in LATHE_LIBRARY"
        )
    return str(found[0])


def _declare(library):
    for name, (result, arguments) in _PROTOTYPES.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return library


PATH = _path()
lib = _declare(ctypes.CDLL(PATH))
# The same functions without letting other threads run meanwhile: for calls that take microseconds.
quick = _declare(ctypes.PyDLL(PATH))
VERSION = lib.lathe_version().decode()


def fail(err: Error):
    """Raise what the record says."""
    kind = _EXCEPTIONS.get(err.status, LatheError)
    raise kind(err.text.decode(errors="replace"), err.file.decode(errors="replace"), err.line)


def check(status: int, err: Error) -> None:
    if status:
        fail(err)


def text_of(function, *args) -> str:
    """What a function writes through its first parameter, which is a text of the library's."""
    err = Error()
    out = c_void_p()
    check(function(byref(out), *args, byref(err)), err)
    try:
        return ctypes.string_at(out.value).decode()
    finally:
        lib.lathe_text_free(out)
