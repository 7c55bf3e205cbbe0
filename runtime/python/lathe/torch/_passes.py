"""A pass of a spec on torch tensors: prepared calls by everything that is compiled in or lies in a record.

This is the path of every call, eager or from a compiled graph, so it is written for few steps: a key, a lookup,
allocations, one call of the library.
"""

from __future__ import annotations

from ctypes import byref

import torch

from .. import _library as c
from .._arrays import HOST, Torch, compact
from .._kernel import Call, Records, Tensor, context_of
from .._op import CALLS_MAX, Op
from .._signature import Argument, Signature

DTYPES = Torch.dtypes()
CODES = {dtype: code for code, dtype in DTYPES.items()} | {torch.bool: c.U8}
LAYOUTS = ("bhsd", "bshd", "thd")

_raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)  # absent from builds without CUDA
_is_deterministic = torch.are_deterministic_algorithms_enabled
_empty = torch.empty_strided  # fewer arguments to look at than torch.empty has
_ONE = (1,)
_BYTES = torch.uint8


class Layout:
    """How tensors of tokens lie: [b, h, s, d] as the library has it, [b, s, h, d], or packed [tokens, h, d]."""

    def __init__(self, name: str, kind: str):
        if name not in LAYOUTS:
            raise c.ArgumentError(f"layout: expected one of {', '.join(LAYOUTS)}, given {name!r}")
        if name != "bhsd" and kind not in ("attention", "linear_attention"):
            raise c.ArgumentError(f"layout: {kind} has no tensors of heads and tokens, which {name!r} is about")
        self.name = name

    def turns(self, argument: Argument) -> bool:
        """Is it a tensor of the main dtype with a row of d for each head and token?"""
        return self.name != "bhsd" and argument.shares_dtype and len(argument.dims) == 4

    def to_library(self, argument: Argument, shape, strides) -> tuple[tuple, tuple]:
        if not self.turns(argument) or len(shape) != (3 if self.name == "thd" else 4):
            return tuple(shape), tuple(strides)
        if self.name == "bshd":
            b, s, h, d = shape
            sb, ss, sh, sd = strides
            return (b, h, s, d), (sb, sh, ss, sd)
        s, h, d = shape
        ss, sh, sd = strides
        return (1, h, s, d), (s * ss, sh, ss, sd)

    def to_user(self, argument: Argument, shape: tuple) -> tuple:
        if not self.turns(argument):
            return shape
        b, h, s, d = shape
        return (b, s, h, d) if self.name == "bshd" else (s, h, d)


class Given:
    """Which arguments of a pass a call has. Known by its identity: there is one for each combination."""

    __slots__ = ("arguments", "scalars")

    def __init__(self, arguments: tuple[Argument, ...], scalars: tuple[Argument, ...]):
        self.arguments = arguments
        self.scalars = scalars


class Plan:
    """One combination of shapes, strides, dtypes and devices."""

    __slots__ = ("call", "device", "index", "made", "workspace")

    def __init__(self, call: Call, device, index: int, made):
        self.call = call
        self.device = device
        self.index = index
        self.made = made  # (shape, strides, dtype) of each result
        self.workspace = (call.workspace,) if call.workspace else None


class Pass:
    """The forward or backward pass of a spec with a fixed set of results."""

    def __init__(self, op: Op, which: int, layout: Layout, results: tuple[str, ...]):
        signature: Signature = op.gradient if which else op.forward
        self.op, self.which, self.layout, self.signature = op, which, layout, signature
        self.results = tuple(signature.by_name[name] for name in results)
        self.plans: dict[tuple, Plan] = {}
        self._given: dict[tuple, Given] = {}

    def given(self, names: tuple[str, ...], scalars: tuple[str, ...]) -> Given:
        """Names in the order of the signature."""
        found = self._given.get((names, scalars))
        if found is None:
            by_name = self.signature.by_name
            found = Given(tuple(by_name[n] for n in names), tuple(by_name[n] for n in scalars))
            self._given[names, scalars] = found
        return found

    # ---- every call -------------------------------------------------------------------------------------------

    def run(self, given: Given, tensors, values) -> list:
        """Tensors and values of scalars as `given` lists them. The results, which are allocated here."""
        key = [given, _is_deterministic()]
        pointers = []
        for t in tensors:
            pointer = t.data_ptr()
            pointers.append(pointer)
            key += (t.shape, t.stride(), t.dtype, t.get_device() * 16 + (pointer & 15))
        key = tuple(key)
        plan = self.plans.get(key)
        if plan is None:
            plan = self._make_plan(key, given, tensors, pointers)
        device = plan.device
        results = []
        for shape, strides, dtype in plan.made:
            result = _empty(shape, strides, dtype=dtype, device=device)
            pointers.append(result.data_ptr())
            results.append(result)
        room = 0
        if plan.workspace:
            workspace = _empty(plan.workspace, _ONE, dtype=_BYTES, device=device)
            room = workspace.data_ptr()
        index = plan.index
        plan.call.launch(pointers, values, room, 0 if index < 0 else _raw_stream(index))
        return results

    # ---- the first of its kind -----------------------------------------------------------------------------------

    def _make_plan(self, key, given: Given, tensors, pointers) -> Plan:
        device = self._device_of(given, tensors)
        forms = {a.name: self._form(a, t) for a, t in zip(given.arguments, tensors)}
        exact = c.F64 in (code for code, _, _ in forms.values())
        scalars = [(a.name, c.F64 if exact and a.dtype == c.F32 else a.dtype) for a in given.scalars]
        records = [Tensor(name, code, shape, strides) for name, (code, shape, strides) in forms.items()]
        made = []
        for argument, (shape, code) in zip(self.results, self._result_forms(forms)):
            user = self.layout.to_user(argument, shape)
            strides = compact(user)
            records.append(Tensor(argument.name, code, *self.layout.to_library(argument, user, strides)))
            made.append((user, strides, DTYPES[code]))
        index = HOST if device.type == "cpu" else device.index
        # Results lie where the allocator puts them, which is at multiples of 16 bytes.
        places = pointers + [0] * len(made)
        call = Call(context_of(index, key[1]), self.op._handle, self.which, records, scalars, places)
        plan = Plan(call, device, index, made)
        if len(self.plans) >= CALLS_MAX:
            self.plans.clear()
        self.plans[key] = plan
        return plan

    def _device_of(self, given: Given, tensors) -> torch.device:
        first = tensors[0].device
        for argument, tensor in zip(given.arguments, tensors):
            if tensor.device != first:
                raise c.ArgumentError(
                    f"argument '{argument.name}': expected a tensor on {first}, as the others are, given one on "
                    f"{tensor.device}"
                )
        if first.type not in ("cpu", "cuda"):
            raise c.ArgumentError(f"{self.op.name}: expected tensors of a CPU or a CUDA device, given {first}")
        return first

    def _form(self, argument: Argument, tensor):
        code = CODES.get(tensor.dtype)
        if code is None:
            raise c.ArgumentError(f"argument '{argument.name}': expected {_expected(argument)}, given {tensor.dtype}")
        return code, *self.layout.to_library(argument, tensor.shape, tensor.stride())

    def _result_forms(self, forms):
        """(shape as the library has it, dtype code) of each result, from (dtype, shape, strides) of operands."""
        sizes, absent = self.signature.sizes({n: shape for n, (_, shape, _) in forms.items()})
        dtypes = {n: code for n, (code, _, _) in forms.items()}
        for argument in self.results:
            shape = self.signature.result_shape(argument, sizes, absent)
            if shape is None:
                self._say_missing(forms)
            yield shape, self.signature.result_dtype(argument, dtypes)

    def _say_missing(self, forms):
        records = Records([Tensor(n, code, shape, None) for n, (code, shape, _) in forms.items()], [])
        err = c.Error()
        handle = context_of(HOST).handle
        status = c.lib.lathe_supported(handle, self.op._handle, self.which, records.array, records.n, byref(err))
        c.check(status, err)
        raise c.ArgumentError(f"{self.op.name}: the sizes of its results do not follow from the tensors given")

    # ---- without data ---------------------------------------------------------------------------------------------

    def fake(self, given: Given, tensors):
        """Results without data, under torch.compile: sizes may be symbols."""
        forms = {a.name: self._form(a, t) for a, t in zip(given.arguments, tensors)}
        return tuple(
            tensors[0].new_empty(self.layout.to_user(a, shape), dtype=DTYPES[code])
            for a, (shape, code) in zip(self.results, self._result_forms(forms))
        )


def _expected(argument: Argument) -> str:
    if argument.dtype == c.NONE:
        return "float32, float16 or bfloat16"
    return str(DTYPES[argument.dtype]).removeprefix("torch.")
