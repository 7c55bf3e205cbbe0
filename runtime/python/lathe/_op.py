"""A spec that can be called."""

from __future__ import annotations

import hashlib
import json as _json
import os
from ctypes import byref, c_void_p
from typing import Any, Mapping, NamedTuple

from . import _arrays, _library as c
from ._arrays import HOST, to_double
from ._bind import Bound, as_answer, bind, complete, given_owner, make_results, stream_number
from ._copies import Shared
from ._kernel import Call, Context, Records, context_of, need_context
from ._numbers import number_of
from ._signature import Argument, Signature
from ._watched import apart_from_dynamo

FILE_MOST = (1 << 20) + 1  # the library refuses what is longer
CALLS_MAX = 4096  # prepared calls that an op keeps: one for each combination of shapes, strides and dtypes


class Proof(NamedTuple):
    """One proof of `Op.check`.

    `passed` is also true where there is nothing to prove (`applies` is false). `warned`: it has passed, and `note` is
    a warning. `unseen`: no proof, but a side of a comparison that no data took. `refused`: it was not run to its end.
    """

    name: str
    applies: bool
    passed: bool
    cut_short: bool
    error: float
    bound: float
    line: int
    note: str
    warned: bool = False
    unseen: bool = False
    refused: bool = False


class Report(list):
    """The proofs of a spec; prints as a table, in the words of `lathe check`."""

    @property
    def passed(self) -> bool:
        return all(p.passed for p in self)

    def __str__(self) -> str:
        return "\n".join(_proof_line(p) for p in self)


def _measured(p: Proof) -> str:
    if not p.passed and p.refused:
        return "not run to its end"
    if not p.passed and p.error <= p.bound:
        return "tells nothing"
    if p.passed and not p.error and not p.bound:
        return ""  # nothing is measured
    return f"error {p.error:.2e} (bound {p.bound:.1e})"


def _proof_line(p: Proof) -> str:
    if p.unseen:
        return f"{p.name:24} {f'line {p.line}: ' if p.line else ''}{p.note}"
    if not p.applies:
        return f"{p.name:24} nothing to prove{': ' + p.note if p.note else ''}"
    verdict = "FAILED" if not p.passed else "part" if p.cut_short else "warn" if p.warned else "ok"
    measured = _measured(p)
    place = f" (line {p.line})" if p.line else ""
    return f"{p.name:24} {verdict:6} {measured}{': ' if measured and p.note else ''}{p.note}{place}"


class Op(Shared):
    """An operator: what `lathe.load` and `lathe.compile` return.

    Call it with its tensors: required ones by position in the order of `op.arguments`, everything by name. The
    results come back in the order of the spec, one alone or a named tuple. An optional result is made where it is
    asked for with True, `op(q, k, v, lse=True)`; the first one also where all are optional and none is asked for (of
    floats: `topk` gives values). A result that is given as a tensor is written there.

        attention          q [b, h, q, d]  k [b, h_kv, kv, d]  v [b, h_kv, kv, d_v]  ->  o [b, h, q, d_v]
        linear_attention   q, k [b, h_k, t, d]  v [b, h, t, d_v]  ->  o [b, h, t, d_v]
        rowwise            x [..., n]  ->  y [..., n]
        elementwise        operands and results by their names (by position: in alphabetical order)

    Tensors are NumPy arrays (the host device, in double precision), or lie on a GPU and have
    `__cuda_array_interface__` or DLPack: torch, CuPy, JAX. They are read as they lie, with any strides that the
    kernel reads; other operands are copied (negative strides; rows of norms and the like whose elements lie apart).
    A result in the place of an operand, as y of act_silu, overwrites it, unless it is asked for: `op(x=a, y=True)`.
    """

    def __init__(self, handle: c_void_p, origin: str, text: str, source: tuple = ()):
        self._handle = handle
        self._source = source  # what opens it again: name, text or None, parameters
        self.origin = origin
        # What names it in graphs that outlive this process.
        self.digest: str = hashlib.sha256(f"{c.VERSION}\n{origin}\n{text}".encode()).hexdigest()[:12]
        self.name: str = c.lib.lathe_spec_name(handle).decode()
        self.kind: str = c.lib.lathe_spec_kind(handle).decode()
        self.forward = Signature(handle, c.FORWARD)
        self.gradient = Signature(handle, c.BACKWARD)
        self.joining = Signature(handle, c.COMBINE)  # without arguments where parts of rows cannot be put together
        self._calls: dict[tuple, tuple[Call, tuple[str, ...]]] = {}  # with the operands that are copied for it
        self._extensions: dict[str, Any] = {}  # of lathe.torch and lathe.jax

    def __del__(self, destroy=c.lib.lathe_spec_destroy):  # at the end of a program modules may be empty already
        if getattr(self, "_handle", None):
            destroy(self._handle)

    def __reduce__(self):
        """As the text that was read, or the name of a shipped spec, which the library that loads it then has."""
        return _open, self._source

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

        The gradients that are wanted are named with True, `dq=True`; without any, all that the spec has of the
        arguments given, but those named with False. Those of inputs are named `d` and the input, and are f32 (f64
        beside f64).
        """
        if not self.has_backward:
            raise c.ArgumentError(f"{self.name}: this spec has no backward pass")
        self._need_seed(args, named)
        return self._run(c.BACKWARD, args, self._with_gradients(args, named), stream, context)

    def _need_seed(self, args, named) -> None:
        """Where each gradient of a result may be left out, one has to be there."""
        seeds = [a for a in self.gradient.tensors if a.name[1:] in self.forward.by_name and a.name[:1] == "d"]
        seeds = [a for a in seeds if self.forward.by_name[a.name[1:]].role == c.RESULT]
        given = {*self.gradient.positional[: len(args)], *(n for n, v in named.items() if v is not None)}
        if seeds and all(a.optional for a in seeds) and not any(a.name in given for a in seeds):
            known = ", ".join(a.name for a in seeds)
            raise c.ArgumentError(f"{self.name}: expected the gradient of a result, one of {known}; given none")

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

        Gives o, and finals that are asked for, as of one call with all keys; o is f32 (f64 beside f64) unless it is
        given as a tensor. Inputs are those that end a row: a sink, say, which counts once.
        """
        if not self.joining.arguments:
            self._refuse_parts()
        return self._run(c.COMBINE, args, named, stream, context)

    def merge(self, *args: Any, stream: Any = None, context: Context | None = None, **named: Any):
        """Put parts of rows together to a part, as they come: the arguments of `combine`, in any number.

        Gives `merged_o` and `merged_rows`, f32 (f64 beside f64), which `combine` and `merge` take as a part. Neither
        may lie where one of the parts does; what ends a row is not done yet.
        """
        if not self.joining.arguments:
            self._refuse_parts()
        instead = {a.name: a.name in ("merged_o", "merged_rows") for a in self.joining.results}
        return self._run(c.COMBINE, args, instead | named, stream, context)

    def _refuse_parts(self):
        context_of(HOST).need_support(self._handle, c.COMBINE, Records([], []))

    def _with_gradients(self, args, named: dict) -> dict:
        """Where no gradient is asked for, all of what is given, but those that are not wanted (False)."""
        if any(a.name in named and named[a.name] is not False for a in self.gradient.results):
            return named
        wanted = (a for a in self.gradient.results if self._has_gradient_of(a, args, named))
        return {a.name: True for a in wanted} | named

    def _has_gradient_of(self, argument: Argument, args, named) -> bool:
        given = set(self.gradient.positional[: len(args)]) | {n for n, v in named.items() if v is not None}
        return argument.name[1:] in given

    @apart_from_dynamo
    def _run(self, which: int, args, named, stream, context):
        signature = (self.forward, self.gradient, self.joining)[which]
        own_stream = None if stream is None else stream_number(stream, None, 0)
        bound = bind(self, signature, args, named, with_data=True, stream=own_stream)
        context = context_of(bound.device) if context is None else context
        need_context(context)
        if context.device != bound.device:
            raise c.ArgumentError(f"context: expected the device of the tensors, given {context!r}")
        family = _arrays.family_of(given_owner(bound.first))
        with family.on(bound.device, own_stream):
            results, written = make_results(self, bound, family, which)
            call = self._prepared(which, bound, context, own_stream)
            workspace = family.empty((call.workspace,), c.U8, bound.device) if call.workspace else None
        room = _arrays.describe(workspace, "workspace").pointer if call.workspace else 0
        where = stream_number(stream, family, bound.device)
        call.launch([a.pointer for a in bound.tensors.values()], list(bound.scalars.values()), room, where)
        _arrays.mark_written(written)
        return as_answer(results)

    def _prepared(self, which: int, bound: Bound, context: Context, stream: int | None = None) -> Call:
        key = (which, id(context), bound.key())
        found = self._calls.get(key)
        if found is None:
            if len(self._calls) >= CALLS_MAX:
                self._calls.clear()
            made = bound.with_copies(lambda: bound.make_call(self, which, context), stream)
            self._calls[key] = made
            return made[0]
        for name in found[1]:
            bound.copy(name, stream)
        return found[0]

    # ---- what becomes of it -------------------------------------------------------------------------------------

    def check(self, seed: int = 1) -> Report:
        """Prove the spec sound on random data in double precision, without a GPU: what `lathe check` does."""
        report = Report()

        def take(_, record):
            p = record.contents
            report.append(
                Proof(p.name.decode(), bool(p.applies), bool(p.passed), bool(p.cut_short), p.error, p.bound,
                      p.line, (p.note or b"").decode(), p.remark == c.REMARK_WARNING, p.remark == c.REMARK_UNSEEN,
                      bool(p.refused))
            )  # fmt: skip

        err = c.Error()
        c.check(c.lib.lathe_prove(self._handle, seed, c.PROOF_FN(take), None, byref(err)), err)
        return report

    def source(self, *args: Any, arch: str | None = None, backward: bool = False, **named: Any) -> str:
        """The CUDA file of the kernel for these tensors, which need no data: `lathe.Shaped((1, 8, 64, 64), "bf16")`.

        arch: "sm_90a" and so on; by default that of the tensors' GPU, or sm_80.
        """
        return self._told(c.lib.lathe_source, args, named, backward, arch)

    def explain(self, *args: Any, arch: str | None = None, backward: bool = False, json: bool = False, **named: Any):
        """Which template serves these tensors, with which numbers, and why the others do not; they need no data.

        A text for people, or, with json, a dict. arch: as of `source`.
        """
        text = self._told(c.lib.lathe_explain, args, named, backward, arch, int(json))
        return _json.loads(text) if json else text

    @apart_from_dynamo
    def kernel(self, *args: Any, backward: bool = False, context: Context | None = None, **named: Any) -> str:
        """Compile the kernel for these tensors, or take it from the cache, and tell about it: template, registers."""
        which = c.BACKWARD if backward else c.FORWARD
        named = self._with_gradients(args, named) if backward else named
        bound = bind(self, self.gradient if backward else self.forward, args, named, with_data=False)
        context = context or context_of(HOST if bound.device is None else bound.device)
        need_context(context)
        complete(self, bound, which)
        return self._prepared(which, bound, context).info

    def reference(self, *args: Any, backward: bool = False, **named: Any):
        """The same call on the host device in double precision, which kernels are compared with: NumPy's float64."""
        exact = [to_double(a) for a in args]
        with_names = {n: to_double(v) for n, v in named.items()}
        return self.backward(*exact, **with_names) if backward else self(*exact, **with_names)

    def draw(self, length: int = 64, heads: int = 4, *, keys: int | None = None, **inputs: Any):
        """A figure of matplotlib: what each query takes from each key, for each head; `.savefig(FILE)` writes it.

        By the host device, for queries and keys of 0, or of score 1 where 0 weighs nothing; inputs: the spec's own, for
        a batch of 1, drawn at random where they are left out. See lathe.draw.
        """
        from . import draw

        return draw.draw(self, length, heads, keys=keys, **inputs)

    @apart_from_dynamo
    def _told(self, function, args, named, backward: bool, arch: str | None, *more) -> str:
        """What a function of the library says of a call, whose tensors need no data."""
        which = c.BACKWARD if backward else c.FORWARD
        named = self._with_gradients(args, named) if backward else named
        bound = bind(self, self.gradient if backward else self.forward, args, named, with_data=False)
        complete(self, bound, which)
        if arch is None:
            on_gpu = bound.device is not None and bound.device != HOST
            arch = context_of(bound.device).arch if on_gpu else "sm_80"

        def tell() -> str:
            records = bound.records()
            return c.text_of(function, self._handle, which, arch.encode(), records.array, records.n, *more)

        return bound.with_copies(tell)[0]


# ---- loading -------------------------------------------------------------------------------------------------------


def load(path: str | os.PathLike[str], **params: float) -> Op:
    """An op from a spec's file, or from the name of a shipped spec: `load("causal")`, `load("mine.lua", W=128)`.

    params: numbers in the place of defaults of the spec's parameters, `local W = param("W", 256)`.
    """
    name = os.fsdecode(path)
    if _is_text(name):
        raise c.SpecError("load: expected a file or the name of a shipped spec, given the text of a spec; "
                          "lathe.compile(TEXT) takes it")  # fmt: skip
    return _open(name, None, params)


def compile(text: str, name: str = "spec.lua", **params: float) -> Op:
    """An op from the text of a spec; messages and generated code call it `name`. params: as of `load`."""
    if not isinstance(text, str):
        raise c.ArgumentError(f"text: expected a str, the text of a spec, given {type(text).__name__}")
    if text.strip() and not _is_text(text):
        raise c.SpecError(f"compile: expected the text of a spec, which returns a constructor call, given {text!r}; "
                          f"lathe.load({text!r}) takes a file or the name of a shipped spec")  # fmt: skip
    return _open(name, text, params)


def as_op(spec: Op | str | os.PathLike[str]) -> Op:
    """An op as it is; of a str, the text of a spec, or what `load` takes."""
    if isinstance(spec, Op):
        return spec
    if not isinstance(spec, (str, bytes, os.PathLike)):
        raise c.ArgumentError(f"expected a lathe.Op, a file, the name of a shipped spec or the text of one, given "
                              f"{type(spec).__name__}")  # fmt: skip
    return compile(spec) if isinstance(spec, str) and _is_text(spec) else load(spec)


def _is_text(spec: str) -> bool:
    """The text of a spec returns a call, so it has words; the name of a file has no line breaks."""
    return "\n" in spec or "return " in spec or "return\t" in spec


def _open(name: str, text: str | None, params: Mapping[str, float]) -> Op:
    err = c.Error()
    handle = c_void_p()
    given = (c.Param * max(len(params), 1))()
    for place, (key, value) in zip(given, params.items()):
        place.name, place.value = key.encode(), _parameter(key, value)
    read = _text_of(name) if text is None else text
    data = None if text is None else text.encode()
    size = 0 if data is None else len(data)
    c.check(
        c.lib.lathe_spec_open(byref(handle), name.encode(), data, size, given, len(params), byref(err)), err
    )
    of_file = text is None and read and ("/" in name or "." in name)  # other names may be those of shipped specs
    source = (name, read if of_file else text, dict(params))
    return Op(handle, name, f"{sorted(params.items())}\n{read}", source)


def _parameter(name: str, value: Any) -> float:
    try:
        return float(number_of(name, c.F64, value))
    except c.ArgumentError:
        raise c.ArgumentError(f"parameter '{name}': expected a number, given {type(value).__name__}") from None


def _text_of(path: str) -> str:
    """Of a file; a shipped spec is known by its name and the version. What is no file the library refuses."""
    try:
        if not os.path.isfile(path):
            return ""
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(FILE_MOST)
    except (OSError, ValueError):
        return ""
