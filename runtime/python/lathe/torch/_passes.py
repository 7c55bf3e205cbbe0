"""A pass of a spec on torch tensors: prepared calls by everything that is compiled in or lies in a record.

This is the path of every call, eager or from a compiled graph, so it is written for few steps: a key, a lookup,
allocations, one call of the library.
"""

from __future__ import annotations

import weakref

import torch

from .. import _layout, _library as c, _operands
from .._arrays import HOST, NOWHERE, Torch, check_memory, compact
from .._kernel import Call, Records, Tensor, context_of, forget_with_context
from .._op import CALLS_MAX, Op
from .._signature import Argument, Signature
from .._watched import say_unusual
from ._batched import each_gradient, is_batched

DTYPES = Torch.dtypes()
CODES = {dtype: code for code, dtype in DTYPES.items()} | {torch.bool: c.U8}

_raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)  # absent from builds without CUDA
_is_deterministic = torch.are_deterministic_algorithms_enabled
_device_now = getattr(torch._C, "_cuda_getDevice", None)


def _allocators() -> dict:
    """Of compiled graphs, by the type of the device: they go past the dispatcher."""
    try:
        from torch._C._dynamo import guards
    except ImportError:
        return {}
    return {"cpu": getattr(guards, "_empty_strided_cpu", None), "cuda": getattr(guards, "_empty_strided_cuda", None)}


_EMPTY = _allocators()
_all: weakref.WeakSet = weakref.WeakSet()


@forget_with_context
def _forget_plans() -> None:
    for one in list(_all):
        one.plans.clear()
        for given in one._given.values():
            given.last = None, None


class Layout:
    """A layout by its name, with the signatures of the op whose tensors lie in it: see lathe/_layout.py."""

    def __init__(self, name: str, op: Op):
        _layout.check_layout(name, op.name, op.kind)
        self.name = name
        self.op = op

    def to_library(self, argument: Argument, shape, strides) -> tuple[tuple, tuple]:
        return _layout.to_library(self.name, self.op, argument, shape, strides)

    def to_user(self, argument: Argument, shape: tuple, paged: bool) -> tuple:
        return _layout.to_user(self.name, self.op, argument, shape, paged)

    def shape_text(self, argument: Argument) -> str:
        return _layout.shape_text(self.name, self.op, argument)

    def need_starts(self, names) -> None:
        _layout.need_starts(self.name, self.op.forward.by_name, dict.fromkeys(names, True))

    def retold(self, error: c.LatheError, by_name) -> c.LatheError:
        return _layout.retold(self.name, self.op, by_name, error)


class Given:
    """Which arguments of a pass a call has. Known by its identity: there is one for each combination."""

    __slots__ = ("arguments", "scalars", "last")

    def __init__(self, arguments: tuple[Argument, ...], scalars: tuple[Argument, ...]):
        self.arguments = arguments
        self.scalars = scalars
        self.last: tuple = (None, None)  # the key of the last call, and its plan: layers of a model are alike


class Plan:
    """One combination of shapes, strides, dtypes and devices."""

    __slots__ = ("launch", "device", "index", "made", "kept", "workspace", "changed", "dtypes", "results", "empty")

    def __init__(self, call, device, index: int, made, kept, changed, dtypes):
        self.launch = call.launch
        self.device = device
        self.index = index
        self.made = made  # (shape, strides, dtype) of each result
        self.kept = kept  # places of results that a call may leave unwritten in part
        self.changed = changed  # (place, function) of operands that are not taken as they lie
        self.workspace = ((call.workspace,), (1,), torch.uint8) if call.workspace else None
        self.dtypes = dtypes  # of operands
        self.results = [(shape, dtype, device) for shape, _, dtype in made]  # what they are like
        # Allocates by shape, strides and dtype, where the device is the current one.
        self.empty = _EMPTY.get(device.type) or self.empty_there

    def empty_there(self, shape, strides, dtype):
        return torch.empty_strided(shape, strides, dtype=dtype, device=self.device)

    def change(self, tensors, pointers: list) -> list:
        """Operands in the form in which they are taken, at their places in `pointers`."""
        others = [(place, change(tensors[place])) for place, change in self.changed]
        for place, other in others:
            pointers[place] = other.data_ptr() or NOWHERE
        return others


class Like:
    """In the place of a plan, for operands that were taken apart."""

    def __init__(self, tensors, results):
        self.dtypes = [t.dtype for t in tensors]
        self.results = [(t.shape, t.dtype, t.device) for t in results]


class Pass:
    """The forward or backward pass of a spec with a fixed set of results."""

    def __init__(self, op: Op, which: int, layout: Layout, results: tuple[str, ...]):
        signature: Signature = op.gradient if which else op.forward
        self.op, self.which, self.layout, self.signature = op, which, layout, signature
        self.results = tuple(signature.by_name[name] for name in results)
        self.plans: dict[tuple, Plan] = {}
        _all.add(self)
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

    def run(self, given: Given, tensors, values) -> tuple[list, Plan]:
        """Tensors and values of scalars as `given` lists them. The results, which are allocated here, and the plan."""
        key = [_is_deterministic()]
        pointers = []
        try:
            for t in tensors:
                pointer = t.data_ptr()
                pointers.append(pointer or NOWHERE)
                where = t.get_device() * 16 + (pointer & 15) if pointer else t.device  # meta has the CPU's number
                key += (t.shape, t.stride(), t.dtype, (where, _NEGATED) if t.is_neg() else where)
        except RuntimeError:
            return self._run_unusual(given, tensors, values)
        last, plan = given.last
        if key != last:
            plan = self.plans.get((given, *key)) or self._make_plan(key, given, tensors, pointers)
            given.last = key, plan
        if plan.changed:
            kept = plan.change(tensors, pointers)  # noqa: F841: alive until the launch
        index = plan.index
        empty = plan.empty if index == HOST or _device_now() == index else plan.empty_there
        results = [empty(*form) for form in plan.made]
        for place in plan.kept:
            results[place].zero_()  # what no sequence, slot or token has is not written
        pointers += [result.data_ptr() or NOWHERE for result in results]
        room = 0
        if plan.workspace:
            workspace = empty(*plan.workspace)
            room = workspace.data_ptr()
        plan.launch(pointers, values, room, 0 if index == HOST else _raw_stream(index))
        return results, plan

    def _run_unusual(self, given: Given, tensors, values):
        """Of tensors without an address."""
        if any(map(is_batched, tensors)):
            results = each_gradient(lambda slices: self.run(given, slices, values)[0], tensors)
            return results, Like(tensors, results)
        alive = [torch._C._functorch.unwrap_if_dead(t) for t in tensors]  # of a torch.func that has ended
        if any(a is not t for a, t in zip(alive, tensors)):
            return self.run(given, alive, values)
        _say_form(given, tensors)
        for t in tensors:
            t.data_ptr()  # whose error says it

    # ---- the first of its kind -----------------------------------------------------------------------------------

    def _make_plan(self, key, given: Given, tensors, pointers) -> Plan:
        device = self._device_of(given, tensors)
        operands = _Operands(self, given, tensors, pointers)
        made = []
        for argument, (shape, code) in zip(self.results, self._result_forms(operands.forms)):
            user = self.layout.to_user(argument, shape, "pages" in operands.forms)
            strides = compact(user)
            operands.results.append(Tensor(argument.name, code, *self.layout.to_library(argument, user, strides)))
            made.append((user, strides, DTYPES[code]))
        has_data = device.type != "meta"
        index = device.index if device.type == "cuda" else HOST
        context = context_of(index, key[0])
        try:
            call = operands.make_call(lambda records, scalars, places: Call(
                context, self.op._handle, self.which, records, scalars, places))  # fmt: skip
        except c.ArgumentError as error:
            raise self.layout.retold(error, self.signature.by_name) from None
        changed = operands.changed if has_data else ()
        names = {a.name for a in given.arguments}
        kept = tuple(i for i, a in enumerate(self.results) if has_data and a.kept_by in names)
        plan = Plan(call if has_data else _Nothing, device, index, made, kept, changed, [t.dtype for t in tensors])
        if len(self.plans) >= CALLS_MAX:
            self.plans.clear()
        self.plans[given, *key] = plan
        return plan

    def _device_of(self, given: Given, tensors) -> torch.device:
        first = tensors[0].device
        for argument, tensor in zip(given.arguments, tensors):
            if tensor.device != first:
                raise c.ArgumentError(
                    f"argument '{argument.name}': expected a tensor on {first}, as the others are, given one on "
                    f"{tensor.device}"
                )
        if first.type not in ("cpu", "cuda", "meta"):
            raise c.ArgumentError(f"{self.op.name}: expected tensors of a CPU or a CUDA device, given {first}")
        return first

    def form_of(self, argument: Argument, tensor):
        code = CODES.get(tensor.dtype)
        if argument.dtype == c.I32 and tensor.dtype in _WIDE:
            code = c.I32
        else:
            _operands.check_whole(argument, tensor.dtype)
        if code is None:
            raise c.ArgumentError(f"argument '{argument.name}': expected {_expected(argument)}, given {tensor.dtype}")
        _operands.check_f32(argument, code)
        return code, *self.layout.to_library(argument, tensor.shape, tensor.stride())

    def _result_forms(self, forms):
        """(shape as the library has it, dtype code) of each result, from (dtype, shape, strides) of operands."""
        shapes = {n: shape for n, (_, shape, _) in forms.items()}
        sizes, absent = self.signature.sizes(shapes)
        dtypes = {n: code for n, (code, _, _) in forms.items()}
        for argument in self.results:
            shape = self.signature.result_shape(argument, shapes, sizes, absent)
            if shape is None:
                self.signature.need_operand(argument, sizes)
                self._say_missing(forms)
            yield shape, self.signature.result_dtype(argument, dtypes)

    def _say_missing(self, forms):
        records = Records([Tensor(n, code, shape, None) for n, (code, shape, _) in forms.items()], [])
        context_of(HOST).need_support(self.op._handle, self.which, records)
        raise c.ArgumentError(f"{self.op.name}: the sizes of its results do not follow from the tensors given")

    # ---- without data ---------------------------------------------------------------------------------------------

    def fake(self, given: Given, tensors):
        """Results without data, under torch.compile: sizes may be symbols."""
        forms = {a.name: self.form_of(a, t) for a, t in zip(given.arguments, tensors)}
        return tuple(
            tensors[0].new_empty(self.layout.to_user(a, shape, "pages" in forms), dtype=DTYPES[code])
            for a, (shape, code) in zip(self.results, self._result_forms(forms))
        )


class _Operands:
    """The operands of a plan: as what the library takes each of them, and what has to be done for it."""

    def __init__(self, work: Pass, given: Given, tensors, pointers):
        self.work, self.given, self.tensors = work, given, tensors
        self.forms = {a.name: work.form_of(a, t) for a, t in zip(given.arguments, tensors)}
        self.places = list(pointers)
        self.results: list[Tensor] = []
        self.changed: tuple = ()
        for place, (argument, tensor) in enumerate(zip(given.arguments, tensors)):
            check_memory(tensor, argument.name)
            if argument.dtype == c.I32 and tensor.dtype in _WIDE:
                name = argument.name
                self._change(place, lambda t, name=name: _operands.narrow(name, t).contiguous())
            elif tensor.is_neg():
                self._change(place, lambda t: t.resolve_neg().contiguous())

    def _change(self, place: int, change) -> None:
        argument, tensor = self.given.arguments[place], self.tensors[place]
        code = self.forms[argument.name][0]
        strides = compact(tensor.shape)
        self.forms[argument.name] = (code, *self.work.layout.to_library(argument, tensor.shape, strides))
        self.places[place] = 0  # where the allocator puts it, which is at a multiple of 16 bytes
        self.changed += ((place, change),)

    def make_call(self, make):
        """With copies of operands that no kernel reads as they lie: gradients that autograd has expanded, say."""
        exact = c.F64 in (code for code, _, _ in self.forms.values())
        scalars = [(a.name, c.F64 if exact and a.dtype == c.F32 else a.dtype) for a in self.given.scalars]
        places = [a.name for a in self.given.arguments]
        while True:
            records = [Tensor(name, code, shape, strides) for name, (code, shape, strides) in self.forms.items()]
            try:
                return make(records + self.results, scalars, self.places + [0] * len(self.results))
            except c.ArgumentError as error:
                name = _operands.refused_strides(error)
                if name not in places or places.index(name) in (i for i, _ in self.changed):
                    raise
                self._change(places.index(name), torch.Tensor.contiguous)


class _Nothing:
    """In the place of a call for tensors without data."""

    workspace = 0

    @staticmethod
    def launch(pointers, values, workspace, stream) -> None:
        pass


_WIDE = _operands.wide_dtypes()
_NEGATED = "negated"  # of what is read with the other sign, as the imaginary part of a conjugate


def _say_form(given: Given, tensors) -> None:
    """Of tensors that have no strides or no address."""
    for argument, tensor in zip(given.arguments, tensors):
        say_unusual(argument.name, tensor)


def _expected(argument: Argument) -> str:
    if argument.dtype == c.NONE:
        return "float32, float16 or bfloat16"
    wanted = str(DTYPES[argument.dtype]).removeprefix("torch.")
    return f"{wanted}, as by .to(torch.{wanted})"
