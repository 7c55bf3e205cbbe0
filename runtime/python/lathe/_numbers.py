"""Scalars of a call: a whole number as it is, or refused; never wrapped or cut to what a record holds."""

from __future__ import annotations

import operator
import sys
from ctypes import c_float
from typing import Any

from . import _library as c

I32_LEAST, I32_MOST = -(2**31), 2**31 - 1
_F32_MOST = 3.4028235677973366e38  # what is smaller than this rounds to a finite f32
_F32_LEAST = 1.1754943508222875e-38  # the smallest number that f32 holds to all digits


def number_of(name: str, dtype: int, value: Any, exact: bool = False) -> int | float:
    """The value of a scalar as a record of this dtype takes it. Whole numbers may come as floats, 3.0.

    name: of the argument, in messages. exact: f32 scalars are f64 in this call, as beside tensors of f64.
    """
    kind = type(value)
    if kind is not int and kind is not float:
        value = _plain(name, dtype, value)
    return _whole(name, value) if dtype in (c.I32, c.U8) else _real(name, dtype, value, exact)


def _whole(name: str, value: Any) -> int:
    if type(value) is not int:
        if value != value or value in (float("inf"), float("-inf")) or value != int(value):
            raise _refusal(name, c.I32, value)
        value = int(value)
    if value < I32_LEAST or value > I32_MOST:
        raise _refusal(name, c.I32, value)
    return value


def _real(name: str, dtype: int, value: Any, exact: bool) -> float:
    try:
        number = float(value)
    except OverflowError:
        raise _refusal(name, c.F64, value) from None
    if dtype == c.F32 and not exact and not _is_held(number):
        raise _refusal(name, c.F32, value)
    return number


def _is_held(number: float) -> bool:
    """By f32, as constants of a spec are. What has lost digits passes where it comes from f32."""
    size = abs(number)
    if size < _F32_LEAST:
        return c_float(number).value == number
    return not _F32_MOST <= size < float("inf")  # NaN and infinity are numbers of f32


def _plain(name: str, dtype: int, value: Any) -> int | float:
    """A number of Python from one of NumPy or torch, or from an array of one element in host memory."""
    if hasattr(value, "item"):
        _check_holder(name, value)
        try:
            value = value.item()
        except (TypeError, ValueError, RuntimeError):
            shape = tuple(getattr(value, "shape", ()))
            raise c.ArgumentError(
                f"argument '{name}': expected a number, or an array of one element, given {type(value).__name__} of "
                f"shape {shape}"
            ) from None
    if isinstance(value, (str, bytes, bytearray, complex)):
        raise _refusal(name, dtype, value)
    for read in (operator.index, float):
        try:
            return read(value)
        except (TypeError, ValueError):
            continue
        except OverflowError:
            break
    raise _refusal(name, dtype, value)


def _check_holder(name: str, value: Any) -> None:
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return
    if value.device.type != "cpu":
        raise c.ArgumentError(
            f"argument '{name}': a scalar is read in host memory at the launch, given a tensor on {value.device}; "
            'pass a number, keep it on the CPU, or declare it as tensor("f32", 1) in the spec'
        )
    if value.dtype.is_complex:
        raise _refusal(name, c.F32, value)
    if torch._C._functorch.is_batchedtensor(value):
        raise c.ArgumentError(f"argument '{name}': a scalar is one number of a call, given one for each slice of "
                              "torch.vmap; call the function for each, or declare a tensor of one element")  # fmt: skip


def _refusal(name: str, dtype: int, value: Any) -> c.ArgumentError:
    if dtype in (c.I32, c.U8):
        wanted = f"a whole number from {I32_LEAST} to {I32_MOST}"
    else:
        wanted = "a number" if isinstance(value, (str, bytes, bytearray, complex)) else "a number that f32 holds"
        wanted = "a number that f64 holds" if dtype == c.F64 else wanted
    shown = repr(value) if isinstance(value, (int, float, str, bytes)) else type(value).__name__
    shown = shown if len(shown) <= 40 else shown[:37] + "..."
    return c.ArgumentError(f"argument '{name}': expected {wanted}, given {shown}")
