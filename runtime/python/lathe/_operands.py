"""Operands as the library takes them: whole numbers of any width become i32, and what lies as no kernel reads it is
copied. Results are never copied: they are written where they lie.
"""

from __future__ import annotations

import re
import sys
from typing import Any

import numpy as np

from . import _arrays, _library as c
from ._numbers import I32_LEAST, I32_MOST
from ._signature import Argument

_NAMED = re.compile(r"argument '(\w+)': expected (last stride 1|strides >= 0)")


def refused_strides(error: c.LatheError) -> str | None:
    """The argument whose strides the library refuses."""
    found = _NAMED.match(str(error))
    return found and found.group(1)


def may_copy(signature, name: str, given) -> bool:
    """Not what the call writes: a result, or an operand in whose place a result goes that nobody gives."""
    argument = signature.by_name[name]
    if argument.role != c.TENSOR or argument.is_list:
        return False
    return not any(r.alias == name and r.name not in given for r in signature.results)


def copied(value: Any, device: int | None, stream: int | None = None) -> Any:
    """The same numbers, compact in memory, made on the stream that reads them. None: nobody is there to copy it."""
    family = _arrays.family_of(value)
    if family is _arrays.Torch:
        with family.on(device, stream):
            return value.contiguous()
    if family is _arrays.Numpy:
        return np.array(value, order="C")
    if family is _arrays.Cupy:
        with family.on(device, stream):
            return sys.modules["cupy"].ascontiguousarray(value)
    return np.array(np.from_dlpack(value), order="C") if device == _arrays.HOST else None


# ---- whole numbers ---------------------------------------------------------------------------------------------------


def as_i32(argument: Argument, value: Any, stream: int | None = None) -> Any:
    """An i32 operand that is given in another width, as torch's int64: its numbers in 32 bits.

    On the host a number beyond 32 bits is refused. On a GPU nobody waits for the numbers: those beyond 32 bits become
    the least or the largest one.
    """
    if argument.dtype != c.I32 or argument.role != c.TENSOR or argument.is_list:
        return value
    if _arrays._is_torch(value):
        return _torch_as_i32(argument.name, value, stream)
    dtype = getattr(value, "dtype", None)
    if not isinstance(dtype, np.dtype) or dtype.kind not in "iu" or dtype == np.int32:
        return value
    if _arrays.family_of(value) is _arrays.Cupy:
        with _arrays.Cupy.on(value.device.id, stream):
            return sys.modules["cupy"].clip(value, I32_LEAST, I32_MOST).astype(np.int32)
    if hasattr(value, "__cuda_array_interface__"):
        return value  # refused by its dtype
    array = np.asarray(value)
    if array.size:
        check_i32(argument.name, int(array.min()), int(array.max()))
    return array.astype(np.int32)


def _torch_as_i32(name: str, value: Any, stream: int | None) -> Any:
    torch = sys.modules["torch"]
    if value.dtype not in wide_dtypes():
        return value
    if value.device.type == "cuda":
        with _arrays.Torch.on(value.device.index, stream):
            return narrow(name, value)
    return narrow(name, value)


def wide_dtypes() -> tuple:
    torch = sys.modules["torch"]
    return torch.int64, torch.int16, torch.int8, torch.uint8


def narrow(name: str, value: Any) -> Any:
    """Of a tensor of torch."""
    torch = sys.modules["torch"]
    if value.dtype is not torch.int64:
        return value.to(torch.int32)
    if value.device.type == "cpu":
        if value.numel():
            least, most = torch.aminmax(value)
            check_i32(name, int(least), int(most))
        return value.to(torch.int32)
    return value.clamp(I32_LEAST, I32_MOST).to(torch.int32)


def check_i32(name: str, least: int, most: int) -> None:
    for number in (least, most):
        if not I32_LEAST <= number <= I32_MOST:
            raise c.ArgumentError(
                f"argument '{name}': expected numbers from {I32_LEAST} to {I32_MOST} (i32), given {number} among them"
            )


_WHOLE = {
    c.I32: ("whole numbers are i32: .to(torch.int32), or .astype(np.int32)", "int32"),
    c.U8: ("marks are u8 or bool: .to(torch.uint8), or .astype(np.uint8)", "uint8", "bool", "bool_"),
}


def check_whole(argument: Argument, dtype: Any) -> None:
    """Of an operand of whole numbers, and the dtype that it has: as whoever made it names this."""
    if argument.dtype not in _WHOLE or argument.role != c.TENSOR or argument.is_list or dtype is None:
        return
    hint, *names = _WHOLE[argument.dtype]
    given = getattr(dtype, "name", None) or str(dtype).rpartition(".")[2]
    wanted = c.DTYPE_NAMES[argument.dtype]
    if given not in names and given != wanted:
        raise c.ArgumentError(f"argument '{argument.name}': expected dtype {wanted}, given {given}; {hint}")


def check_f32(argument: Argument, code: int) -> None:
    """Of an f32 operand. A model that was cast as a whole, as by .bfloat16(), gives 16 bits."""
    if argument.dtype != c.F32 or argument.takes_halves or argument.role != c.TENSOR or code not in (c.F16, c.BF16):
        return
    other = ', or declare it as tensor("float", ...), which takes any float dtype' if argument.is_input else ""
    raise c.ArgumentError(
        f"argument '{argument.name}': expected dtype f32, given {c.DTYPE_NAMES[code]}; this argument is f32 beside "
        f"tensors of every dtype: pass {argument.name}.float(){other}"
    )
