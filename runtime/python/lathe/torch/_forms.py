"""Softmax attention as arguments of other libraries describe it: the text of its spec, its function, who serves it."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch

from .. import _library as c
from .._kernel import Records, Tensor, context_of, forget_with_context
from .._op import Op
from .._op import compile as compile_text
from ._function import Function, wrap
from ._passes import CODES

DIMS = ("b", "h", "q", "kv")
_INDEX = {"b": "at.b", "h": "at.h", "q": "at.row", "kv": "at.kv"}  # a table over "q" counts queries from 0


@dataclass(frozen=True)
class Form:
    """What a kernel is compiled for, beside sizes and dtypes."""

    scale: float | None = None
    window: tuple[int, int] = (-1, -1)  # keys before and after a query's own position; -1: all of them
    mask: tuple[str, ...] | None = None  # dims of a table of bools
    bias: tuple[str, ...] | None = None  # dims of what is added to scores
    learns_bias: bool = False
    softcap: float | None = None
    sink: bool = False
    dropout: bool = False

    def text(self) -> str:
        lines = ["return attention {", f"  inputs      = {{ {', '.join(self._inputs())} }},"]
        if self.scale is not None:
            lines.append(f"  scale       = {self.scale!r},")
        if self._mask():
            lines.append(f"  mask_mod    = {self._mask()},")
        if self.softcap is not None or self.bias is not None:
            lines.append(f"  score_mod   = function(s, at, x) return {self._score()} end,")
        if self.sink:
            lines.append("  online_func = softmax_with_sink(function(at, x) return x.sink(at.h) end),")
        if self.dropout:
            lines.append("  online_func = softmax_with_dropout(keep, kept_scale),")
        return "\n".join([*(_DROPOUT if self.dropout else ()), *lines, "}"])

    def _inputs(self):
        if self.mask is not None:
            yield f"mask = tensor({_quoted('u8', *self.mask)})"
        if self.bias is not None:
            options = ", { grad = true }" if self.learns_bias else ""
            yield f"bias = tensor({_quoted('float', *self.bias)}{options})"
        if self.sink:
            yield 'sink = tensor("float", "h", { grad = true })'
        if self.dropout:
            yield 'p = scalar("f32"), seed = scalar("i32")'

    def _mask(self) -> str:
        before, after = self.window
        parts = ["causal"] if after == 0 else []
        if after > 0:
            parts.append(f"function(at) return le(at.kv - at.q, {after}) end")
        if before >= 0:
            parts.append(f"function(at) return le(at.q - at.kv, {before}) end")
        if self.mask is not None:
            parts.append(f"function(at, x) return ne({_read('mask', self.mask)}, 0) end")
        return functools.reduce(lambda one, other: f"both({one}, {other})", parts) if parts else ""

    def _score(self) -> str:
        s = "s" if self.softcap is None else f"{self.softcap!r} * tanh(s / {self.softcap!r})"
        return s if self.bias is None else f"{s} + {_read('bias', self.bias)}"


_DROPOUT = (
    "local function keep(at, x) return ge(random(x.seed, at.b, at.h, at.q, at.kv), x.p) end",
    "local function kept_scale(at, x) return where(lt(x.p, 1.0), 1.0 / (1.0 - x.p), 0.0) end",
)


def _quoted(*words: str) -> str:
    return ", ".join(f'"{w}"' for w in words)


def _read(name: str, dims) -> str:
    return f"x.{name}({', '.join(_INDEX[d] for d in dims)})"


@functools.lru_cache(maxsize=1024)
def op_of(form: Form) -> Op:
    return compile_text(form.text(), "attention.lua")


@functools.lru_cache(maxsize=1024)
def function_of(form: Form, layout: str = "bhsd", results: tuple[str, ...] = ("o",)) -> Function:
    return wrap(op_of(form), layout=layout, results=results)


def table_of(t: torch.Tensor, sizes) -> tuple[tuple[str, ...], torch.Tensor] | None:
    """A table that broadcasts over [b, h, q, kv] by the dims that it has, or None where it does not fit.

    A dim of 1 is left out, so that a gradient is summed over it."""
    if t.dim() > len(DIMS):
        return None
    shape = (1,) * (len(DIMS) - t.dim()) + tuple(t.shape)
    if any(n not in (1, size) for n, size in zip(shape, sizes)):
        return None
    places = [i for i, n in enumerate(shape) if n != 1]
    if not places:
        t, places = t.reshape(1).expand(sizes[-1]), [len(DIMS) - 1]
        return (DIMS[-1],), t
    return tuple(DIMS[i] for i in places), t.reshape([shape[i] for i in places])


@functools.lru_cache(maxsize=4096)
def serves(form: Form, index: int, dtype, heads: tuple[int, int], dims: tuple[int, int], bias_dtype, learns: bool,
           deterministic: bool = False) -> bool:  # fmt: skip
    """Has this GPU kernels of both passes for such heads? Lengths do not decide that."""
    sizes = {"b": 1, "h": heads[0], "h_kv": heads[1], "q": 64, "kv": 64, "d": dims[0], "d_v": dims[1]}
    op = op_of(form)
    codes = {"bias": CODES.get(bias_dtype, c.F32), "mask": c.U8, "lse": c.F32, "sink": CODES[dtype]}
    for which, signature in ((c.FORWARD, op.forward), (c.BACKWARD, op.gradient)):
        if which == c.BACKWARD and not learns:
            return True
        wanted = [a for a in signature.tensors if not a.optional or a.name in ("o", "lse")]
        wanted += [a for a in signature.results if which == c.BACKWARD or not a.optional]
        tensors = []
        for a in wanted:
            code = c.F32 if a.dtype == c.F32 else codes.get(a.name, CODES[dtype])
            tensors.append(Tensor(a.name, code, tuple(sizes[n] for n in _names(a)), None))
        records = Records(tensors, [(a.name, a.dtype) for a in signature.scalars if not a.optional])
        try:
            context_of(index, deterministic).need_support(op._handle, which, records)
        except c.LatheError:
            return False
    return True


forget_with_context(serves.cache_clear)


def _names(argument) -> list[str]:
    return argument.shape_text.strip("[]").split(", ")
