"""Translations of traced mods: a spec for what a call asks, its function, and what that takes of captured tensors."""

from __future__ import annotations

import math

import numpy as np
import torch

from ... import _library as c
from ..._op import compile as compile_text
from .._function import wrap
from ._inputs import Inputs, Sizes, evaluate
from ._spec import Parts
from ._trace import Graph

_TRANSLATIONS = 64  # of a trace
_MOST = 1024  # ops that are kept
_ops: dict[str, object] = {}


class Traced:
    """Two mods as graphs. names: of the tensors that they capture, by their slots."""

    def __init__(self, score: Graph | None, mask: Graph | None, names: list[str], float_dtype, **numbers):
        self.score, self.mask = score, mask
        self.names = names
        self.float_dtype = float_dtype
        self.numbers = numbers  # that are left open, as Inputs takes them
        self.translations: list[Translation] = []
        self.served: dict[tuple, Translation] = {}  # by the forms of calls
        self.is_lasting = True

    def translation(self, request: "Request") -> "Translation":
        for found in self.translations:
            if found.serves(request):
                return found
        made = self._translate(request)
        if len(self.translations) >= _TRANSLATIONS:
            self.translations.clear()
            self.served.clear()
        self.translations.append(made)
        return made

    def _translate(self, request: "Request") -> "Translation":
        if not any(g.captured for g in (self.score, self.mask) if g):
            try:  # a cache that grows by a token a call need not be looked at each time
                return Translation(self, Request(request.sizes.rounded(), *request.fixed()))
            except c.SpecError:
                pass
        return Translation(self, request)


class Request:
    """What a call asks for beside its mods: what a text depends on."""

    __slots__ = ("sizes", "scale", "block", "results")

    def __init__(self, sizes: Sizes, scale, block, results: tuple[str, ...]):
        self.sizes, self.scale, self.block, self.results = sizes, scale, block, results

    def fixed(self):
        return (self.scale, self.block, self.results)


class Translation:
    """A spec of two mods, and how its inputs come from captured tensors."""

    def __init__(self, traced: Traced, request: Request, numbers: dict | None = None):
        self.request = request
        inputs = Inputs(traced.names, traced.float_dtype, **traced.numbers)
        parts = Parts(traced.score, traced.mask, inputs, request.sizes)
        parts.scale, parts.block, parts.numbers = request.scale, request.block, numbers
        parts.with_maximum = "max_scores" in request.results
        self.text = parts.text()
        self.inputs = inputs.unique()
        self.scalars = list(inputs.scalars.values())
        self.numbers = traced.numbers.get("numbers")
        self._function = None

    def serves(self, request: Request) -> bool:
        """The same dims, and no integer that a longer one would let grow."""
        if request.fixed() != self.request.fixed():
            return False
        now, then = request.sizes.by_name, self.request.sizes.by_name
        if now == then:
            return True
        return not self.inputs and None not in then.values() and all(now[n] <= then[n] for n in now)

    @property
    def function(self):
        if self._function is None:
            self._function = wrap(_op_of(self.text), results=self.request.results)
        return self._function

    def given(self, tensors, numbers, q) -> dict:
        """What the spec takes beside q, k and v, of captured tensors and of numbers by their slots."""
        tensor_of = lambda node: node.tensor if node.slot < 0 else tensors[node.slot]  # noqa: E731
        number_of = None
        if self.scalars:
            number_of = lambda one: self.numbers.formula(one)(numbers)  # noqa: E731
        given = {i.name: _as_operand(evaluate(i.node, tensor_of, number_of), i, q) for i in self.inputs}
        for scalar in self.scalars:
            given[scalar.name] = scalar.formula(numbers)
        return given

    def call(self, tensors, numbers, q, k, v, tables, sharing=None):
        if sharing is not None and sharing.is_cut:
            given = self.given(tensors, numbers, q) | self._expanded(tables, q)
            return sharing.call(_op_of(self.text), self.request.results, q, k, v, given)
        if not (self.inputs or self.scalars or tables) and q.shape[2] == k.shape[2]:
            return self.function(q, k, v)  # q_start is 0 where lengths are equal
        return self.function(q, k, v, q_start=0, **self.given(tensors, numbers, q), **self._expanded(tables, q))

    @staticmethod
    def _expanded(tables: dict, q) -> dict:
        return {name: table.expand(q.shape[0], q.shape[1], *table.shape[2:]) for name, table in tables.items()}


def _op_of(text: str):
    found = _ops.get(text)
    if found is None:
        if len(_ops) >= _MOST:
            _ops.clear()
        found = _ops[text] = compile_text(text, "flex_attention.lua")
    return found


def _as_operand(t: torch.Tensor, found, q) -> torch.Tensor:
    t = t.reshape(1) if found.is_number else t
    dtype = t.dtype
    if dtype in (torch.int8, torch.int16):
        dtype = torch.int32
    elif dtype.is_floating_point and q.dtype is torch.float64:
        dtype = torch.float64
    if t.device != q.device and found.is_number:
        return t.to(q.device, dtype)
    return t if t.dtype is dtype else t.to(dtype)


def scale_of(scale, q) -> float | None:
    """None where it is the default."""
    usual = 1.0 / math.sqrt(q.shape[-1])
    digits = float if q.dtype is torch.float64 else np.float32
    return None if scale is None or digits(scale) == digits(usual) else float(scale)
