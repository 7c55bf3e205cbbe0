"""A call as FLA makes it, put into our words: the text of its spec, its operands and results, and who serves it."""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import warnings
from dataclasses import dataclass

import torch

from .. import _library as c
from .._arrays import HOST
from .._kernel import Records, Tensor, context_of, forget_with_context
from .._layout import to_library
from .._op import Op
from .._op import compile as compile_text
from ..torch._function import Function, wrap
from ..torch._passes import CODES
from ..torch._register import PLAIN

LAYOUT = "bshd"
_PLACES = ("cu", "state_index", "states_index")
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@dataclass(frozen=True)
class Form:
    """What a kernel is compiled for, beside sizes and dtypes. Formulas are Lua, in terms of `at` and `x`."""

    inputs: tuple[tuple[str, tuple[str, ...]], ...] = ()  # names and dims; without dims: a scalar
    decay: str = ""
    delta: str = ""
    bonus: str = ""
    reader: str = ""
    writer: str = ""
    value: str = ""
    scale: float | None = None
    unit: bool = False
    normalise: bool = False
    reverse: bool = False
    read_first: bool = False
    updates: int = 0  # of the state by a token; 0: one, and not said

    def text(self) -> str:
        lines = ["return linear_attention {", f"  inputs    = {{ {', '.join(self._inputs())} }},"]
        if self.unit:
            lines.append("  query_mod = unit, key_mod = unit,")
        for slot in ("decay", "delta", "bonus"):
            if getattr(self, slot):
                lines.append(f"  {slot:9} = function(at, x) return {getattr(self, slot)} end,")
        for slot in ("reader", "writer"):
            if getattr(self, slot):
                lines.append(f"  {slot:9} = function(k, at, x) return {getattr(self, slot)} end,")
        if self.value:
            lines.append(f"  value_mod = function(v, at, x) return {self.value} end,")
        if self.scale is not None:
            lines.append(f"  scale     = {self.scale!r},")
        for slot in ("normalise", "reverse", "read_first"):
            if getattr(self, slot):
                lines.append(f"  {slot:9} = true,")
        if self.updates:
            lines.append(f"  updates   = {self.updates},")
        return "\n".join([*lines, "}"])

    def _inputs(self):
        for name, dims in self.inputs:
            shape = "".join(f"{d}, " if isinstance(d, int) else f'"{d}", ' for d in dims)
            yield f'{name} = tensor("float", {shape}{{ grad = true }})' if dims else f'{name} = scalar("f32")'


@functools.lru_cache(maxsize=1024)
def op_of(form: Form) -> Op:
    return compile_text(form.text(), "fla.lua")


@functools.lru_cache(maxsize=1024)
def function_of(form: Form, results: tuple[str, ...]) -> Function:
    return wrap(op_of(form), layout=LAYOUT, results=results)


class Call:
    """inputs: tensors with their dims by name, or numbers. The rest by FLA's names; decay, delta and such are Lua."""

    def __init__(self, q, k, v, *, inputs=None, decay="", delta="", bonus="", reader="", writer="", value="",
                 read_first=False, updates=0, scale=None, initial_state=None, output_final_state=False,
                 state_v_first=False, cu_seqlens=None, use_qk_l2norm_in_kernel=False, normalize=False,
                 reverse=False):  # fmt: skip
        inputs = inputs or {}
        named = tuple((n, tuple(dims)) for n, (_, *dims) in inputs.items())
        flags = bool(use_qk_l2norm_in_kernel), bool(normalize), bool(reverse)
        self.form = Form(named, decay, delta, bonus, reader, writer, value, _finite(scale), *flags, read_first,
                         updates)
        self.wants_state, self.state_v_first = bool(output_final_state), bool(state_v_first)
        self.operands = {"q": q, "k": k, "v": v, **{n: given[0] for n, given in inputs.items()}}
        self._add_states(initial_state)
        if cu_seqlens is not None:
            self.operands["cu"] = cu_seqlens
        self.results = ("o", "state_out", "norm_out")[: 1 + self.wants_state * (1 + self.form.normalise)]

    def _add_states(self, given) -> None:
        """FLA's sum of keys is [seqs, 1, h, d]; where one of the two states is left out, it is 0."""
        state, norm = given if self.form.normalise and isinstance(given, (tuple, list)) else (given, None)
        if state is None and norm is None:
            return
        if norm is not None:
            norm = norm.squeeze(1)
        if state is None:
            state = norm.new_zeros(*norm.shape, self.operands["v"].shape[-1])
        elif self.state_v_first:
            state = state.transpose(-1, -2)
        self.operands["state"] = state
        if self.form.normalise:
            self.operands["norm"] = state.new_zeros(state.shape[:-1]) if norm is None else norm

    # ---- to run it ---------------------------------------------------------------------------------------------

    def run(self):
        """(o, final state) as FLA returns them; the state is None where nobody asked for it."""
        self._check_tensors()
        given = dict(self.operands)
        for name in ("state", "norm"):
            if name in given:
                given[name] = given[name].to(self._state_dtype())
        with as_given(given["q"]):
            made = function_of(self.form, self.results)(**given)
        if not self.wants_state:
            return made, None
        if self.form.normalise:
            o, state, norm = made
            return o, (state, norm.unsqueeze(1))
        o, state = made
        return o, state.transpose(-1, -2) if self.state_v_first else state

    def _state_dtype(self):
        return torch.float64 if self.operands["q"].dtype is torch.float64 else torch.float32

    def _check_tensors(self) -> None:
        for name, t in self._tensors():
            if not isinstance(t, torch.Tensor):
                raise c.ArgumentError(f"argument '{name}': expected a tensor of torch, given {type(t).__name__}")
        v, beta = self.operands["v"], self.operands.get("beta")
        if beta is not None and beta.dim() == v.dim() > len(dict(self.form.inputs)["beta"]):
            raise c.UnsupportedError(
                "lathe.fla: beta of a value channel [b, t, h, d_v] is not served; one per token and head [b, t, h] is")
        state, cu = self.operands.get("state"), self.operands.get("cu")
        n = self.operands["q"].shape[0] if cu is None else cu.shape[0] - 1
        if state is not None and state.shape[0] != (self._expected_states(n) or state.shape[0]):
            raise c.ArgumentError(
                f"initial_state: expected the states of {n} sequences, {'b' if cu is None else 'as cu_seqlens tells'}, "
                f"given {list(state.shape)}")  # fmt: skip

    def _expected_states(self, n: int) -> int | None:
        return n

    def _tensors(self):
        scalars = {n for n, dims in self.form.inputs if not dims}
        return [(n, t) for n, t in self.operands.items() if n not in scalars]

    # ---- who serves it -----------------------------------------------------------------------------------------

    def refusal(self) -> str | None:
        """Why no kernel of this device serves the call, forward or backward; None: one does."""
        try:
            self._check_tensors()
            q, tensors = self.operands["q"], self._tensors()
            for name, t in tensors:
                if type(t) not in PLAIN or t.layout is not torch.strided:
                    return f"argument '{name}': expected a plain tensor, given {type(t).__name__} of {t.layout}"
                if t.device != q.device or name not in _PLACES and t.dtype not in _FLOATS:
                    return f"argument '{name}': {t.dtype} on {t.device}"
            learns = torch.is_grad_enabled() and any(t.requires_grad for _, t in tensors)
            forms = tuple((n, self._code(n, t), tuple(t.shape)) for n, t in tensors)
            index = q.device.index if q.is_cuda else HOST
            exact = torch.are_deterministic_algorithms_enabled()
            return _refusal(self.form, self.results, forms, index, learns, exact)
        except c.LatheError as error:
            return str(error)

    def _code(self, name: str, t) -> int:
        if name == "cu":
            return c.I32
        return CODES[self._state_dtype() if name in ("state", "norm") else t.dtype]


@functools.lru_cache(maxsize=4096)
def _refusal(form: Form, results, forms, index: int, learns: bool, deterministic: bool) -> str | None:
    op = op_of(form)
    context = context_of(index, deterministic)
    signature = op.forward
    dtypes = {n: code for n, code, _ in forms}
    shapes = {n: to_library(LAYOUT, op, signature.by_name[n], shape, shape)[0] for n, _, shape in forms}
    read = [*dtypes, *results]
    try:
        _need_support(op, context, c.FORWARD, dtypes, shapes, read)
        if learns:
            gradients = ["d" + n for n in read]
            _need_support(op, context, c.BACKWARD, dtypes, shapes, [*read, *gradients])
    except c.LatheError as error:
        return str(error)
    return None


forget_with_context(_refusal.cache_clear)


def _need_support(op, context, which: int, dtypes, shapes, names) -> None:
    """names: of what a pass reads and writes, as far as it knows them."""
    signature = op.gradient if which == c.BACKWARD else op.forward
    sizes, absent = signature.sizes(shapes)
    tensors = []
    for argument in (signature.by_name[n] for n in names if n in signature.by_name):
        name = argument.name
        shape = shapes.get(name) or signature.result_shape(argument, shapes, sizes, absent)
        if shape is not None:
            tensors.append(Tensor(name, dtypes.get(name) or signature.result_dtype(argument, dtypes), shape, None))
    scalars = [(a.name, a.dtype) for a in signature.scalars if not a.optional]
    context.need_support(op._handle, which, Records(tensors, scalars))


def as_given(q):
    """FLA's kernels take what they are given under autocast, too: decays in f32 beside q of 16 bits stay so."""
    if torch._C._is_any_autocast_enabled():
        return torch.autocast(q.device.type, enabled=False)
    return contextlib.nullcontext()


# ---- functions by FLA's names ------------------------------------------------------------------------------------

_OF_CALL = ("scale", "initial_state", "output_final_state", "state_v_first", "cu_seqlens", "use_qk_l2norm_in_kernel",
            "normalize", "reverse")  # fmt: skip
_HINTS = {"chunk_size", "cu_seqlens_cpu", "chunk_indices", "disable_recompute", "safe_gate", "max_num_seqs"}
_ELSEWHERE = {
    "cp_context": "sequences over several devices are not served; without it, initial_state takes the state before",
    "use_graph": "FLA's lists of chunks for graphs are not served; leave it out, our kernels keep no such lists",
    "return_intermediate_states": "states within a sequence are not returned; call by parts with output_final_state, "
                                  "or an Op with states and states_index",
    "output_attentions": "weights are not made; lathe.Op.draw has pictures of them",
    "inplace_final_state": "the fused_recurrent functions write over the state; by this name "
                           "output_final_state gives a new one",
    "ssm_state_indices": "the fused_recurrent functions take pools of states; lathe.load has state_index, "
                         "state_out_index and states_index for every rule",
    "num_accepted_tokens": "goes with the fused_recurrent functions' ssm_state_indices",
    "out": "a result is made anew; without it",
    "head_first": "was removed from FLA; give tensors [b, t, h, d], by .transpose(1, 2)",
}


class _Arguments(dict):
    """Of a call, by name; None where there is none."""

    __getattr__ = __missing__ = dict.get


def op(rule):
    """A function with the signature that it decorates, which runs what `rule` makes of its arguments; `call_of` makes
    the call and does not run it."""

    def decorate(signature):
        parameters = inspect.signature(signature).parameters.values()
        names = tuple(p.name for p in parameters if p.kind is not p.VAR_KEYWORD)
        defaults = {p.name: p.default for p in parameters if p.name in names and p.default is not p.empty}
        known = frozenset(names)
        of_call = tuple(n for n in _OF_CALL if n in names)
        tokens = ("q" if "q" in names else "r", "k", "v")

        def call_of(*args, **named) -> Call:
            named = _renamed(named)
            signature(*args, **named)  # has no body: Python itself says what is missing
            given = _Arguments(defaults)
            given.update(zip(names, args))
            given.update(named)
            place = _take_places(given, signature.__name__)
            _check_rest(given, known)
            more = {**rule(given), **{n: given[n] for n in of_call}}
            if not place:
                return Call(*(given[n] for n in tokens), **more)
            from ._pools import InPlace

            return InPlace(*(given[n] for n in tokens), **place, **more)

        @torch.compiler.disable
        def apart(*args, **named):
            return call_of(*args, **named).run()

        @functools.wraps(signature)
        def function(*args, **named):
            """Compiled programs call it between two graphs, as they call FLA's."""
            return (apart if torch.compiler.is_compiling() else run)(*args, **named)

        def run(*args, **named):
            return call_of(*args, **named).run()

        function.call_of = call_of
        return function

    return decorate


def _take_places(given, name: str) -> dict | None:
    """What of a call says where states are written, if not to a new one; with a pool they are in place unless it says
    otherwise."""
    if not name.startswith("fused_recurrent"):
        return None
    index, in_place = given["ssm_state_indices"], given["inplace_final_state"]
    if index is not None and in_place is False:
        raise c.UnsupportedError(
            "lathe.fla: ssm_state_indices: states are written to slots of initial_state, not with inplace_final_state="
            "False; lathe.load has states and states_index for a tensor of their own")
    if index is None and not in_place:
        return None
    given.pop("inplace_final_state", None)
    return {"index": given.pop("ssm_state_indices", None), "accepted": given.pop("num_accepted_tokens", None)}


def _renamed(named) -> dict:
    if "transpose_state_layout" not in named:
        return named
    warnings.warn("transpose_state_layout is called state_v_first now", DeprecationWarning, stacklevel=4)
    named = dict(named)
    return named | {"state_v_first": named.pop("transpose_state_layout") or named.get("state_v_first", False)}


def _check_rest(given, known) -> None:
    """Of arguments that say how FLA's kernels work, which do not matter, and of those that ask for more than ours."""
    for name in _ELSEWHERE.keys() & given.keys():
        if given[name] is not None and given[name] is not False:
            raise c.UnsupportedError(f"lathe.fla: {name}: {_ELSEWHERE[name]}")
    if given["cu_seqlens_cpu"] is not None and given["cu_seqlens"] is None:
        raise c.ArgumentError("cu_seqlens_cpu: goes with cu_seqlens, which is missing, and says where sequences begin")
    for name in given.keys() - known - _HINTS - _ELSEWHERE.keys():
        raise TypeError(f"lathe.fla: unexpected argument '{name}'")


def _finite(scale) -> float | None:
    if scale is not None and not math.isfinite(scale):
        raise c.ArgumentError(f"scale: expected a finite number, given {scale}")
    return None if scale is None else float(scale)
