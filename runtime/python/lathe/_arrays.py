"""What a caller passes as a tensor: NumPy, torch, CuPy, anything with DLPack or `__cuda_array_interface__`.

`describe` says where an array lies, its dtype, shape and strides in elements; a `Family` allocates beside it and
knows its stream.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from . import _library as c
from ._watched import check_known, check_seen

HOST = -1
NOWHERE = 4096  # in the place of NULL, which torch and others give for tensors without elements: they are given, too

_NUMPY_DTYPES = {
    np.dtype(np.float32): c.F32, np.dtype(np.float16): c.F16, np.dtype(np.float64): c.F64,
    np.dtype(np.int32): c.I32, np.dtype(np.uint8): c.U8, np.dtype(np.bool_): c.U8,
    np.dtype(np.int8): c.I8,
}  # fmt: skip
_FROM_NUMPY_NAME = {
    "float32": c.F32, "float16": c.F16, "float64": c.F64, "bfloat16": c.BF16, "int32": c.I32, "uint8": c.U8,
    "bool": c.U8, "f32": c.F32, "f16": c.F16, "f64": c.F64, "bf16": c.BF16, "i32": c.I32, "u8": c.U8,
    "float8_e4m3fn": c.F8_E4M3, "float8_e5m2": c.F8_E5M2, "int8": c.I8,
    "f8e4m3": c.F8_E4M3, "f8e5m2": c.F8_E5M2, "i8": c.I8,
}  # fmt: skip
_TO_NUMPY_NAME = {c.F32: "float32", c.F16: "float16", c.F64: "float64", c.BF16: "bfloat16", c.I32: "int32",
                  c.U8: "uint8", c.F8_E4M3: "float8_e4m3fn", c.F8_E5M2: "float8_e5m2", c.I8: "int8"}  # fmt: skip


_KNOWN = "f32, f16, bf16, f64, i32, u8, or of 8 bits f8e4m3, f8e5m2 or i8"


class Array(NamedTuple):
    """A tensor as the library sees it. device: HOST, or the number of a GPU; None: it has no data."""

    pointer: int
    dtype: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    device: int | None
    owner: Any


@dataclass(frozen=True)
class Shaped:
    """A tensor without data, for `explain` and `source`: `lathe.Shaped((1, 16, 4096, 128), "bf16")`."""

    shape: tuple[int, ...]
    dtype: str


def dtype_code(dtype: Any, name: str) -> int:
    if isinstance(dtype, type) and issubclass(dtype, np.generic):  # np.float16; np.floating, which is no dtype
        dtype = dtype.__name__.rstrip("_")
    code = _NUMPY_DTYPES.get(dtype) if isinstance(dtype, np.dtype) else None
    if code is None:
        code = _FROM_NUMPY_NAME.get(getattr(dtype, "name", None) or str(dtype).rpartition(".")[2])
    if code is None:
        raise c.ArgumentError(f"argument '{name}': expected dtype {_KNOWN}, given {dtype}{_how_to_cast(dtype)}")
    return code


def _how_to_cast(dtype: Any) -> str:
    """Of 64-bit integers, torch's usual ones."""
    if "int64" not in str(dtype):
        return ""
    return "; whole numbers are i32: .to(torch.int32), or .astype(np.int32)"


def compact(shape) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


# ---- families: who allocates beside an array, and on which stream it works -----------------------------------
#
# `on(device, stream)`: what is allocated and copied inside belongs to that stream, a number; None: to the current one.
# An allocator hands memory out again in the order of one stream.


class Numpy:
    name = "numpy"

    @staticmethod
    def on(device: int | None, stream: int | None):
        return contextlib.nullcontext()

    @staticmethod
    def empty(shape, dtype: int, device: int):
        wanted = _TO_NUMPY_NAME[dtype]
        if wanted in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
            import ml_dtypes  # where an array of it was given, it is there

            return np.empty(shape, getattr(ml_dtypes, wanted))
        return np.empty(shape, wanted)

    @staticmethod
    def stream(device: int) -> int:
        return 0


class Torch:
    name = "torch"

    @staticmethod
    def on(device: int | None, stream: int | None):
        if stream is None or device is None or device == HOST:
            return contextlib.nullcontext()
        cuda = sys.modules["torch"].cuda
        return cuda.stream(cuda.ExternalStream(stream, device))

    @staticmethod
    def dtypes():
        torch = sys.modules["torch"]
        return {c.F32: torch.float32, c.F16: torch.float16, c.BF16: torch.bfloat16, c.F64: torch.float64,
                c.I32: torch.int32, c.U8: torch.uint8, c.F8_E4M3: torch.float8_e4m3fn,
                c.F8_E5M2: torch.float8_e5m2, c.I8: torch.int8}  # fmt: skip

    @staticmethod
    def empty(shape, dtype: int, device: int):
        torch = sys.modules["torch"]
        where = "cpu" if device == HOST else torch.device("cuda", device)
        return torch.empty(shape, dtype=Torch.dtypes()[dtype], device=where)

    @staticmethod
    def stream(device: int) -> int:
        return 0 if device == HOST else sys.modules["torch"].cuda.current_stream(device).cuda_stream


class Cupy:
    name = "cupy"

    @staticmethod
    @contextlib.contextmanager
    def on(device: int | None, stream: int | None):
        cuda = sys.modules["cupy"].cuda
        with cuda.Device(device), contextlib.nullcontext() if stream is None else cuda.ExternalStream(stream):
            yield

    @staticmethod
    def empty(shape, dtype: int, device: int):
        cupy = sys.modules["cupy"]
        if dtype in (c.BF16, c.F8_E4M3, c.F8_E5M2):
            kind = c.DTYPE_NAMES[dtype]
            raise c.ArgumentError(f"results of dtype {kind} cannot be made by CuPy: pass the tensor, as in o=tensor")
        with cupy.cuda.Device(device):
            return cupy.empty(shape, _TO_NUMPY_NAME[dtype])

    @staticmethod
    def stream(device: int) -> int:
        cuda = sys.modules["cupy"].cuda
        with cuda.Device(device):  # each device has a current stream of its own
            return cuda.get_current_stream().ptr


class Foreign:
    """Arrays that are known by an interface alone: nothing can be allocated for them on a GPU."""

    name = "foreign"

    @staticmethod
    def maker(device: int | None):
        """Who allocates for them, if anybody does."""
        if device is None or device == HOST:
            return Numpy
        return Torch if "torch" in sys.modules else Cupy if "cupy" in sys.modules else None

    @staticmethod
    def on(device: int | None, stream: int | None):
        return (Foreign.maker(device) or Numpy).on(device, stream)

    @staticmethod
    def empty(shape, dtype: int, device: int):
        maker = Foreign.maker(device)
        if maker:
            return maker.empty(shape, dtype, device)
        raise c.ArgumentError(
            "results on a GPU are made by torch or CuPy, of which neither is imported: import one, or pass every "
            "result as a tensor, as in o=tensor"
        )

    @staticmethod
    def stream(device: int) -> int:
        return 0


def family_of(array: Any):
    top = type(array).__module__.partition(".")[0]
    if top == "torch" or _is_torch(array):
        return Torch
    return {"numpy": Numpy, "cupy": Cupy}.get(top, Foreign)


def _is_torch(array: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


# ---- descriptions ----------------------------------------------------------------------------------------------


def describe(array: Any, name: str) -> Array:
    """Raises ArgumentError for what is no tensor."""
    if isinstance(array, np.ndarray):
        return _of_numpy(array, name)
    if _is_torch(array):
        return _of_torch(array, name)
    check_known(name, array)
    if hasattr(array, "__cuda_array_interface__"):
        return _of_interface(array, array.__cuda_array_interface__, name)
    if hasattr(array, "__dlpack__"):
        return _of_dlpack(array, name)
    if hasattr(array, "shape") and hasattr(array, "dtype"):
        return Array(0, dtype_code(array.dtype, name), tuple(array.shape), None, None, array)
    raise c.ArgumentError(
        f"argument '{name}': expected a tensor (NumPy, torch, DLPack or __cuda_array_interface__), given "
        f"{type(array).__name__}"
    )


def check_writable(array: Any, name: str) -> None:
    """Of a result, or of an operand that is written over."""
    if type(array).__module__.partition(".")[0] in ("jax", "jaxlib"):
        raise c.ArgumentError(f"argument '{name}': arrays of JAX are not written in place; lathe.jax makes results")
    if _is_torch(array) and array.is_neg():
        raise c.ArgumentError(f"argument '{name}': expected a tensor that holds its numbers, given one that is read "
                              "with the other sign (.is_neg()); give its .resolve_neg()")  # fmt: skip
    interface = getattr(array, "__cuda_array_interface__", None) if not _is_torch(array) else None
    if isinstance(array, np.ndarray) and not array.flags.writeable or interface and interface["data"][1]:
        raise c.ArgumentError(f"argument '{name}': expected an array that can be written, given one that is read-only")


def readable(array: Any) -> Any:
    """A tensor of torch that is read with the other sign, as the imaginary part of a conjugate, as one that is not."""
    return array.resolve_neg() if _is_torch(array) and array.is_neg() else array


def mark_written(arrays) -> None:
    """Tensors of torch, whose autograd refuses to go back through what was changed since it was kept."""
    written = [a for a in arrays if _is_torch(a)]
    if written:
        sys.modules["torch"].autograd.graph.increment_version(written)


def check_no_gradient(value: Any, name: str) -> None:
    if _is_torch(value) and value.requires_grad and sys.modules["torch"].is_grad_enabled():
        raise c.ArgumentError(
            f"argument '{name}': requires a gradient, of which a call of lathe.Op knows nothing; lathe.torch.call(op, "
            "...) has autograd, and under torch.no_grad() none is asked for"
        )


def _strides(shape, byte_strides, size: int, name: str) -> tuple[int, ...]:
    if any(s % size for s in byte_strides):
        raise c.ArgumentError(
            f"argument '{name}': expected strides that are multiples of its element of {size} bytes, given "
            f"{tuple(byte_strides)} bytes"
        )
    return tuple(s // size for s in byte_strides)


def _of_numpy(array, name: str) -> Array:
    code = dtype_code(array.dtype, name)
    if not array.dtype.isnative:
        raise c.ArgumentError(f"argument '{name}': expected this machine's order of bytes, given the other one")
    strides = _strides(array.shape, array.strides, array.itemsize, name)
    return Array(array.ctypes.data, code, array.shape, strides, HOST, array)


def _of_torch(array, name: str) -> Array:
    kind = array.device.type
    check_seen(name, array)
    check_no_gradient(array, name)
    code = dtype_code(array.dtype, name)
    shape = tuple(array.shape)
    if kind == "meta":
        return Array(0, code, shape, tuple(array.stride()), None, array)
    if kind not in ("cpu", "cuda"):
        raise c.ArgumentError(f"argument '{name}': expected a tensor of a CPU or a CUDA device, given one of {kind}")
    device = HOST if kind == "cpu" else array.device.index
    check_memory(array, name)
    return Array(array.data_ptr() or NOWHERE, code, shape, tuple(array.stride()), device, array)


def check_memory(tensor: Any, name: str) -> None:
    """Of a tensor of torch that has elements; their memory may have been given back, as by FSDP."""
    try:
        if tensor.device.type == "meta" or not tensor.numel() or tensor.data_ptr():
            return
    except RuntimeError:  # of a compiler's own tensors
        pass
    raise c.ArgumentError(f"argument '{name}': expected a tensor with memory, given one of shape "
                          f"{list(tensor.shape)} that has none")  # fmt: skip


_FROM_TYPESTR = {"f4": c.F32, "f2": c.F16, "f8": c.F64, "i4": c.I32, "u1": c.U8, "b1": c.U8}


def _of_interface(array, interface, name: str) -> Array:
    code = _FROM_TYPESTR.get(interface["typestr"].lstrip("<|="))
    if code is None:
        raise c.ArgumentError(f"argument '{name}': expected f32, f16, f64, i32 or u8, given {interface['typestr']}")
    shape = tuple(interface["shape"])
    strides = interface.get("strides")
    if strides is not None:
        strides = _strides(shape, strides, c.DTYPE_BYTES[code], name)
    device = getattr(getattr(array, "device", None), "id", 0)
    return Array(interface["data"][0] or NOWHERE, code, shape, strides, device, array)


# ---- DLPack ------------------------------------------------------------------------------------------------------


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_FROM_DLPACK = {(2, 32): c.F32, (2, 16): c.F16, (4, 16): c.BF16, (2, 64): c.F64, (0, 32): c.I32, (1, 8): c.U8,
                (6, 8): c.U8, (0, 8): c.I8, (10, 8): c.F8_E4M3, (12, 8): c.F8_E5M2}  # fmt: skip
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def _of_dlpack(array, name: str) -> Array:
    """The capsule stays ours and unused, so its own destructor gives the memory back."""
    capsule = array.__dlpack__()
    tensor = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    code = _FROM_DLPACK.get((tensor.code, tensor.bits))
    if code is None or tensor.lanes != 1:
        raise c.ArgumentError(
            f"argument '{name}': expected dtype {_KNOWN}, given DLPack code {tensor.code} of {tensor.bits} bits"
        )
    if tensor.device_type not in (1, 2, 3, 13):
        raise c.ArgumentError(f"argument '{name}': expected memory of a CPU or of CUDA, given DLPack device "
                              f"{tensor.device_type}")  # fmt: skip
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    strides = tuple(tensor.strides[i] for i in range(tensor.ndim)) if tensor.strides else None
    device = tensor.device_id if tensor.device_type in (2, 13) else HOST
    return Array((tensor.data or 0) + tensor.byte_offset or NOWHERE, code, shape, strides, device, (array, capsule))


def to_double(value: Any):
    """Copies, which may be written over: floats as NumPy float64; scalars, and what is asked for, as they are."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if _is_torch(value):
        value = readable(value).detach().cpu()
        return np.array(value.double().numpy() if value.dtype.is_floating_point else value.numpy())
    array = np.asarray(value.get() if hasattr(value, "get") else value)
    own = array.dtype.kind == "f" or array.dtype.name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")
    return array.astype(np.float64 if own else array.dtype)
