"""A spec that can be called."""

from __future__ import annotations

import collections
import hashlib
import json as _json
import os
from ctypes import byref, c_void_p
from typing import Any, Mapping, NamedTuple, Sequence

import numpy as np

from . import _arrays, _library as c
from ._arrays import HOST, Array
from ._kernel import Call, Context, Records, Tensor, context_of, need_context
from ._signature import Argument, Signature, unknown

CALLS_MAX = 4096  # prepared calls that an op keeps: one for each combination of shapes, strides and dtypes


class Proof(NamedTuple):
    """One proof of `Op.check`: `passed` is also true where there is nothing to prove (`applies` is false)."""

    name: str
    applies: bool
    passed: bool
    cut_short: bool
    error: float
    bound: float
    line: int
    note: str


class Report(list):
    """The proofs of a spec; prints as a table."""

    @property
    def passed(self) -> bool:
        return all(p.passed for p in self)

    def __str__(self) -> str:
        return "\n".join(_proof_line(p) for p in self)


def _proof_line(p: Proof) -> str:
    if not p.applies:
        return f"{p.name:24} nothing to prove{': ' + p.note if p.note else ''}"
    verdict = "FAILED" if not p.passed else "part" if p.cut_short else "ok"
    measured = f"error {p.error:.2e} (bound {p.bound:.1e})" if p.error or p.bound else ""
    place = f" (line {p.line})" if p.line else ""
    return f"{p.name:24} {verdict:6} {measured}{': ' if measured and p.note else ''}{p.note}{place}"


class Op:
    """An operator: what `lathe.load` and `lathe.compile` return.

    Call it with its tensors: required ones by position in the order of `op.arguments`, everything by name. The
    results come back in the order of the spec, one alone or a named tuple. An optional result is made where it is
    asked for with True, `op(q, k, v, lse=True)`; a result that is given as a tensor is written there.

        attention          q [b, h, q, d]  k [b, h_kv, kv, d]  v [b, h_kv, kv, d_v]  ->  o [b, h, q, d_v]
        linear_attention   q, k [b, h_k, t, d]  v [b, h, t, d_v]  ->  o [b, h, t, d_v]
        rowwise            x [..., n]  ->  y [..., n]
        elementwise        operands and results by their names (by position: in alphabetical order)

    Tensors are NumPy arrays (the host device, in double precision), or lie on a GPU and have
    `__cuda_array_interface__` or DLPack: torch, CuPy, JAX. Strides are free: nothing is copied on the way.
    """

    def __init__(self, handle: c_void_p, origin: str, text: str):
        self._handle = handle
        self.origin = origin
        # What names it in graphs that outlive this process.
        self.digest: str = hashlib.sha256(f"{c.VERSION}\n{origin}\n{text}".encode()).hexdigest()[:12]
        self.name: str = c.lib.lathe_spec_name(handle).decode()
        self.kind: str = c.lib.lathe_spec_kind(handle).decode()
        self.forward = Signature(handle, c.FORWARD)
        self.gradient = Signature(handle, c.BACKWARD)
        self.joining = Signature(handle, c.COMBINE)  # without arguments where parts of rows cannot be put together
        self._calls: dict[tuple, Call] = {}
        self._extensions: dict[str, Any] = {}  # of lathe.torch and lathe.jax

    def __del__(self):
        if getattr(self, "_handle", None):
            c.lib.lathe_spec_destroy(self._handle)

    def __repr__(self) -> str:
        return f"<lathe.Op {self.name} ({self.kind}): {', '.join(a.name for a in self.forward.arguments)}>"

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """What a call takes, with shapes as sizes by name."""
        return self.forward.arguments

    @property
    def params(self) -> dict[str, float]:
        """The spec's parameters, as it was loaded: what `load(path, NAME=value)` sets."""
        info = c.ParamInfo()
        out: dict[str, float] = {}
        while c.lib.lathe_spec_param(self._handle, len(out), info):
            out[info.name.decode()] = int(info.value) if info.is_integer else info.value
        return out

    @property
    def has_backward(self) -> bool:
        return bool(self.gradient.results)

    # ---- calls ------------------------------------------------------------------------------------------------

    def __call__(self, *args: Any, stream: Any = None, context: Context | None = None, **named: Any):
        """Run the forward pass. stream: of CUDA, as a number or an object of torch or CuPy; its own by default."""
        return self._run(c.FORWARD, args, named, stream, context)

    def backward(self, *args: Any, stream: Any = None, context: Context | None = None, **named: Any):
        """Run the backward pass: the forward pass's tensors, and the gradients of its results (`do=`, `dy=`).

        The gradients that are wanted are named with True, `dq=True`; without any, all that the spec has. Those of
        inputs are named `d` and the input, and are f32.
        """
        if not self.has_backward:
            raise c.ArgumentError(f"{self.name}: this spec has no backward pass")
        return self._run(c.BACKWARD, args, self._with_gradients(args, named), stream, context)

    def parts(self, *args: Any, stream: Any = None, context: Context | None = None, **named: Any):
        """What some of the keys are to the rows of attention: `part_o` and `part_rows`, for `combine`.

        The arguments of a call, k and v with those keys alone; q_start: where query 0 stands among them.
        """
        if "part_o" not in self.forward.by_name:
            self._refuse_parts()
        instead = {a.name: a.name in ("part_o", "part_rows") for a in self.forward.results}
        return self._run(c.FORWARD, args, instead | named, stream, context)

    def combine(self, *args: Any, stream: Any = None, context: Context | None = None, **named: Any):
        """Put parts of rows together: part_o and part_rows of `parts`, stacked along a new first dim, in any order.

        Gives o, and finals that are asked for, as of one call with all keys; o is f32 unless it is given as a
        tensor. Inputs are those that end a row: a sink, say, which counts once.
        """
        if not self.joining.arguments:
            self._refuse_parts()
        return self._run(c.COMBINE, args, named, stream, context)

    def _refuse_parts(self):
        records, err = Records([], []), c.Error()
        host = context_of(HOST)
        c.check(
            c.lib.lathe_supported(host.handle, self._handle, c.COMBINE, records.array, 0, byref(err)), err
        )

    def _with_gradients(self, args, named: dict) -> dict:
        """Where no gradient is asked for, all of what is given."""
        if any(a.name in named for a in self.gradient.results):
            return named
        wanted = (a for a in self.gradient.results if self._has_gradient_of(a, args, named))
        return named | {a.name: True for a in wanted}

    def _has_gradient_of(self, argument: Argument, args, named) -> bool:
        given = set(self.gradient.positional[: len(args)]) | {n for n, v in named.items() if v is not None}
        return argument.name[1:] in given

    def _run(self, which: int, args, named, stream, context):
        signature = (self.forward, self.gradient, self.joining)[which]
        bound = _bind(self, signature, args, named, with_data=True)
        context = context_of(bound.device) if context is None else context
        need_context(context)
        if context.device != bound.device:
            raise c.ArgumentError(f"context: expected the device of the tensors, given {context!r}")
        family = _arrays.family_of(_given_owner(bound.first))
        results = _make_results(self, signature, bound, family, context, which)
        call = self._prepared(which, bound, context)
        workspace = family.empty((call.workspace,), c.U8, bound.device) if call.workspace else None
        room = _arrays.describe(workspace, "workspace").pointer if call.workspace else 0
        where = _stream_number(stream, family, bound.device)
        call.launch([a.pointer for a in bound.tensors.values()], list(bound.scalars.values()), room, where)
        return _as_answer(self, which, results)

    def _prepared(self, which: int, bound: "_Bound", context: Context) -> Call:
        key = (which, id(context), bound.key())
        call = self._calls.get(key)
        if call is None:
            if len(self._calls) >= CALLS_MAX:
                self._calls.clear()
            call = self._calls[key] = _make_call(self, which, bound, context)
        return call

    # ---- what becomes of it -------------------------------------------------------------------------------------

    def check(self, seed: int = 1) -> Report:
        """Prove the spec sound on random data in double precision, without a GPU: what `lathe check` does."""
        report = Report()

        def take(_, record):
            p = record.contents
            report.append(
                Proof(p.name.decode(), bool(p.applies), bool(p.passed), bool(p.cut_short), p.error, p.bound,
                      p.line, (p.note or b"").decode())
            )  # fmt: skip

        err = c.Error()
        c.check(c.lib.lathe_prove(self._handle, seed, c.PROOF_FN(take), None, byref(err)), err)
        return report

    def source(self, *args: Any, arch: str | None = None, backward: bool = False, **named: Any) -> str:
        """The CUDA file of the kernel for these tensors, which need no data: `lathe.Shaped((1, 8, 64, 64), "bf16")`.

        arch: "sm_90a" and so on; by default that of the tensors' GPU, or sm_80.
        """
        records, which, arch = self._described(args, named, backward, arch)
        return c.text_of(c.lib.lathe_source, self._handle, which, arch.encode(), records.array, records.n)

    def explain(self, *args: Any, arch: str | None = None, backward: bool = False, json: bool = False, **named: Any):
        """Which template serves these tensors, with which numbers, and why the others do not; they need no data.

        A text for people, or, with json, a dict. arch: as of `source`.
        """
        records, which, arch = self._described(args, named, backward, arch)
        text = c.text_of(
            c.lib.lathe_explain, self._handle, which, arch.encode(), records.array, records.n, int(json)
        )
        return _json.loads(text) if json else text

    def kernel(self, *args: Any, backward: bool = False, context: Context | None = None, **named: Any) -> str:
        """Compile the kernel for these tensors, or take it from the cache, and tell about it: template, registers."""
        which = c.BACKWARD if backward else c.FORWARD
        named = self._with_gradients(args, named) if backward else named
        bound = _bind(self, self.gradient if backward else self.forward, args, named, with_data=False)
        context = context or context_of(HOST if bound.device is None else bound.device)
        need_context(context)
        _complete(self, bound, which)
        return self._prepared(which, bound, context).info

    def reference(self, *args: Any, backward: bool = False, **named: Any):
        """The same call on the host device in double precision: the oracle. Returns NumPy arrays of float64."""
        exact = [_to_double(a) for a in args]
        with_names = {n: _to_double(v) for n, v in named.items()}
        return self.backward(*exact, **with_names) if backward else self(*exact, **with_names)

    def draw(self, length: int = 64, heads: int = 4, *, keys: int | None = None, **inputs: Any):
        """A figure of matplotlib: what each query takes from each key, for each head; `.savefig(FILE)` writes it.

        By the host device, for queries and keys of 0; inputs: the spec's own, for a batch of 1. See lathe.draw.
        """
        from . import draw

        return draw.draw(self, length, heads, keys=keys, **inputs)

    def _described(self, args, named, backward: bool, arch: str | None):
        which = c.BACKWARD if backward else c.FORWARD
        named = self._with_gradients(args, named) if backward else named
        bound = _bind(self, self.gradient if backward else self.forward, args, named, with_data=False)
        _complete(self, bound, which)
        if arch is None:
            on_gpu = bound.device is not None and bound.device != HOST
            arch = context_of(bound.device).arch if on_gpu else "sm_80"
        records = _records(bound)
        return records, which, arch


# ---- binding -----------------------------------------------------------------------------------------------------


class _Bound:
    """The arguments of one call by name, in the order of the signature."""

    __slots__ = ("signature", "tensors", "scalars", "wanted", "device", "first", "exact")

    def __init__(self, signature: Signature):
        self.signature = signature
        self.tensors: dict[str, Array] = {}
        self.scalars: dict[str, float] = {}
        self.wanted: list[Argument] = []  # results to make
        self.device: int | None = None
        self.first: Array | None = None
        self.exact = False  # f64 throughout

    def key(self) -> tuple:
        return (
            tuple((n, t.dtype, t.shape, t.strides, t.pointer & 15) for n, t in self.tensors.items()),
            tuple(self.scalars),
        )

    def scalar_dtype(self, name: str) -> int:
        dtype = self.signature.by_name[name].dtype
        return c.F64 if self.exact and dtype == c.F32 else dtype


def _unknown(op: Op, signature: Signature, name: str) -> c.ArgumentError:
    if signature is op.gradient and name[:1] == "d" and name[1:] in signature.by_name:
        return c.ArgumentError(
            f"argument '{name}': '{name[1:]}' has no gradient in this spec; "
            "an input is declared with grad = true for one"
        )
    return unknown(op.name, [a.name for a in signature.arguments], name, also=("stream", "context"))


def _name_positions(op: Op, signature: Signature, args: Sequence[Any], named: dict) -> dict:
    if len(args) > len(signature.positional):
        raise c.ArgumentError(
            f"{op.name}: expected at most {len(signature.positional)} tensors by position "
            f"({', '.join(signature.positional)}), given {len(args)}; others are given by name"
        )
    given = dict(zip(signature.positional, args))
    for name, value in named.items():
        if name in given:
            raise c.ArgumentError(f"argument '{name}': given twice, by position and by name")
        if name not in signature.by_name:
            raise _unknown(op, signature, name)
        given[name] = value
    return {n: v for n, v in given.items() if v is not None}


def _bind(op: Op, signature: Signature, args, named, *, with_data: bool) -> _Bound:
    given = _name_positions(op, signature, args, named)
    bound = _Bound(signature)
    for argument in signature.arguments:
        value = given.get(argument.name)
        if value is None:
            continue
        if argument.role == c.SCALAR:
            bound.scalars[argument.name] = _scalar(argument, value)
        elif argument.role == c.RESULT and isinstance(value, bool):
            if value:
                bound.wanted.append(argument)
        elif argument.is_list:
            raise c.ArgumentError(
                f"argument '{argument.name}': {op.name} takes lists of tensors, as arrays of pointers; "
                "lathe.torch.Lion and lathe.torch.AdamW, and lathe.torch.lists, call it"
            )
        else:
            if argument.role == c.RESULT:
                _arrays.check_writable(value, argument.name)
            bound.tensors[argument.name] = _arrays.describe(value, argument.name)
    asked = {a.name for a in bound.wanted} | set(bound.tensors)
    for argument in signature.results:
        if not argument.optional and argument.name not in asked and given.get(argument.name) is not False:
            bound.wanted.append(argument)
    bound.wanted.sort(key=signature.arguments.index)
    _find_device(op, bound, with_data)
    bound.exact = any(t.dtype == c.F64 for t in bound.tensors.values())
    return bound


def _find_device(op: Op, bound: _Bound, with_data: bool) -> None:
    for name, tensor in bound.tensors.items():
        if tensor.device is None:
            if with_data:
                raise c.ArgumentError(f"argument '{name}': expected a tensor with data, given one without")
            continue
        if bound.first is None:
            bound.first, bound.device = tensor, tensor.device
        elif tensor.device != bound.device:
            raise c.ArgumentError(
                f"argument '{name}': expected a tensor on {_where(bound.device)}, as the others are, given one on "
                f"{_where(tensor.device)}"
            )
    if with_data and bound.first is None:
        raise c.ArgumentError(f"{op.name}: expected tensors ({', '.join(bound.signature.positional)}), given none")


def _where(device: int | None) -> str:
    return "the host" if device == HOST else f"cuda:{device}"


def _scalar(argument: Argument, value: Any) -> float:
    """A number, or an array of one element in host memory."""
    try:
        device = getattr(getattr(value, "device", None), "type", "cpu")
        if device == "cuda":
            raise c.ArgumentError(
                f"argument '{argument.name}': a scalar is read in host memory at the launch, given a tensor on a "
                "GPU; pass a number, or declare it as tensor(\"f32\", 1) in the spec"
            )
        number = value.item() if hasattr(value, "item") else value
        return int(number) if argument.dtype == c.I32 else float(number)
    except (TypeError, ValueError, RuntimeError) as error:
        if isinstance(error, c.LatheError):
            raise
        raise c.ArgumentError(f"argument '{argument.name}': expected a number, given {type(value).__name__}") from None


def _records(bound: _Bound) -> Records:
    tensors = [Tensor(n, t.dtype, t.shape, t.strides) for n, t in bound.tensors.items()]
    records = Records(tensors, [(n, bound.scalar_dtype(n)) for n in bound.scalars])
    for place, value in zip(records.scalars, bound.scalars.values()):
        place.value = value
    return records


def _make_call(op: Op, which: int, bound: _Bound, context: Context) -> Call:
    tensors = [Tensor(n, t.dtype, t.shape, t.strides) for n, t in bound.tensors.items()]
    scalars = [(n, bound.scalar_dtype(n)) for n in bound.scalars]
    return Call(context, op._handle, which, tensors, scalars, [t.pointer for t in bound.tensors.values()])


# ---- results -----------------------------------------------------------------------------------------------------


def _result_forms(op: Op, bound: _Bound, which: int):
    """(argument, shape, dtype) of every result that is to be made. A missing operand is named by the library."""
    signature = bound.signature
    sizes, absent = signature.sizes({n: t.shape for n, t in bound.tensors.items()})
    dtypes = {n: t.dtype for n, t in bound.tensors.items()}
    for argument in bound.wanted:
        shape = signature.result_shape(argument, sizes, absent)
        if shape is None:
            _say_missing(op, bound, which)
        yield argument, shape, signature.result_dtype(argument, dtypes)


def _say_missing(op: Op, bound: _Bound, which: int):
    records = _records(bound)
    err = c.Error()
    host = context_of(HOST)
    c.check(
        c.lib.lathe_supported(host.handle, op._handle, which, records.array, records.n, byref(err)), err
    )
    raise c.ArgumentError(f"{op.name}: the sizes of its results do not follow from the tensors that were given")


def _make_results(op: Op, signature: Signature, bound: _Bound, family, context: Context, which: int) -> dict[str, Any]:
    made = {}
    for argument, shape, dtype in _result_forms(op, bound, which):
        made[argument.name] = family.empty(shape, dtype, bound.device)
        bound.tensors[argument.name] = _arrays.describe(made[argument.name], argument.name)
    answer = {}
    for argument in signature.results:
        if argument.name in made:
            answer[argument.name] = made[argument.name]
        elif argument.name in bound.tensors:
            answer[argument.name] = _given_owner(bound.tensors[argument.name])
        elif argument.alias and argument.alias in bound.tensors:
            answer[argument.name] = _given_owner(bound.tensors[argument.alias])
    order = [a.name for a in signature.arguments if a.name in bound.tensors]
    bound.tensors = {n: bound.tensors[n] for n in order}
    return answer


def _given_owner(array: Array):
    return array.owner[0] if isinstance(array.owner, tuple) else array.owner


def _complete(op: Op, bound: _Bound, which: int) -> None:
    """Results without data, for a call that is only described."""
    for argument, shape, dtype in _result_forms(op, bound, which):
        bound.tensors[argument.name] = Array(0, dtype, shape, None, None, None)
    order = [a.name for a in bound.signature.arguments if a.name in bound.tensors]
    bound.tensors = {n: bound.tensors[n] for n in order}


_answers: dict[tuple, type] = {}


def _as_answer(op: Op, which: int, results: Mapping[str, Any]):
    if len(results) == 1:
        return next(iter(results.values()))
    names = tuple(results)
    made = _answers.get(names)
    if made is None:
        made = _answers[names] = collections.namedtuple("Results", names, rename=True)
    return made(*results.values())


def _stream_number(stream: Any, family, device: int) -> int:
    if stream is None:
        return family.stream(device)
    if isinstance(stream, int):
        return stream
    for field in ("cuda_stream", "ptr"):
        if hasattr(stream, field):
            return int(getattr(stream, field))
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    raise c.ArgumentError(f"stream: expected a number or a stream of torch or CuPy, given {type(stream).__name__}")


def _to_double(value: Any):
    """Floats as NumPy float64; integers, scalars and what is asked for with True as they are."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if _arrays._is_torch(value):
        value = value.detach().cpu()
        return value.double().numpy() if value.dtype.is_floating_point else value.numpy()
    array = np.asarray(value.get() if hasattr(value, "get") else value)
    return array.astype(np.float64) if array.dtype.kind == "f" or array.dtype.name == "bfloat16" else array


# ---- loading -------------------------------------------------------------------------------------------------------


def load(path: str | os.PathLike[str], **params: float) -> Op:
    """An op from a spec's file, or from the name of a shipped spec: `load("causal")`, `load("mine.lua", W=128)`.

    params: numbers in the place of defaults of the spec's parameters, `local W = param("W", 256)`.
    """
    name = os.fsdecode(path)
    return _open(name, None, _text_of(name), params)


def compile(text: str, name: str = "spec.lua", **params: float) -> Op:
    """An op from the text of a spec; messages and generated code call it `name`. params: as of `load`."""
    if not isinstance(text, str):
        raise c.ArgumentError(f"text: expected a str, the text of a spec, given {type(text).__name__}")
    return _open(name, text, text, params)


def _open(name: str, text: str | None, known_by: str, params: Mapping[str, float]) -> Op:
    err = c.Error()
    handle = c_void_p()
    given = (c.Param * max(len(params), 1))()
    for place, (key, value) in zip(given, params.items()):
        try:
            place.name, place.value = key.encode(), float(value)
        except (TypeError, ValueError):
            raise c.ArgumentError(f"parameter '{key}': expected a number, given {type(value).__name__}") from None
    data = None if text is None else text.encode()
    size = 0 if data is None else len(data)
    c.check(
        c.lib.lathe_spec_open(byref(handle), name.encode(), data, size, given, len(params), byref(err)), err
    )
    return Op(handle, name, f"{sorted(params.items())}\n{known_by}")


def _text_of(path: str) -> str:
    """A shipped spec is known by its name and the version."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
