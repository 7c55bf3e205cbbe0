"""flex_attention: FlexAttention's call on kernels of Lathe."""

from __future__ import annotations

import math
import warnings

import numpy as np
import torch
from torch.nn.attention import flex_attention as flex

from ... import _library as c
from ..._op import compile as compile_text
from .._function import wrap
from .._passes import say_unusual
from ._blocks import Blocks, blocks_of, heads_of
from ._inputs import Inputs, Sizes, evaluate
from ._spec import KNOWN, Parts
from ._trace import Graph, place_of, trace
from ._watch import Seen, watch

_SCORE = ("s", "b", "h", "q", "kv")
_MASK = _SCORE[1:]
_TRANSLATIONS = 64  # of a trace
_MOST = 1024  # traces, translations and ops that are kept, each
_AuxRequest = getattr(flex, "AuxRequest", None)
_AuxOutput = getattr(flex, "AuxOutput", None)
_is_compiling = torch.compiler.is_compiling
_graphs: dict = {}
_ops: dict[str, object] = {}
_once: set = set()  # places of mods whose first trace was not kept
_said: set = set()


class Traced:
    """Two mods as graphs, with the places of the tensors that they capture in what `watch` finds."""

    def __init__(self, score_mod, mask_mod, seen: Seen, float_dtype, device):
        self.score: Graph | None = trace(score_mod, _SCORE, float_dtype, device, KNOWN) if score_mod else None
        self.mask: Graph | None = trace(mask_mod, _MASK, float_dtype, device, KNOWN) if mask_mod else None
        places = {id(t): i for i, t in enumerate(seen.tensors)}
        captured = [n for g in (self.score, self.mask) if g for n in g.captured]
        self.is_lasting = not seen.opaque and all(id(n.tensor) in places for n in captured) and self._is_watched(seen)
        for node in captured:
            node.settle(places.get(id(node.tensor), -1), self.is_lasting)
        self.names = seen.labels
        self.float_dtype = float_dtype
        self.translations: list[Translation] = []
        self._held = seen.held

    def _is_watched(self, seen: Seen) -> bool:
        """Has no function run that the walk has not looked into?"""
        return all(g.codes is not None and _outer(g.codes, seen.codes) for g in (self.score, self.mask) if g)

    def translation(self, ask: "Asked") -> "Translation":
        for found in self.translations:
            if found.serves(ask):
                return found
        made = self._translate(ask)
        if len(self.translations) >= _TRANSLATIONS:
            self.translations.clear()
        self.translations.append(made)
        return made

    def _translate(self, ask: "Asked") -> "Translation":
        if not any(g.captured for g in (self.score, self.mask) if g):
            try:  # a cache that grows by a token a call need not be looked at each time
                return Translation(self, Asked(ask.sizes.rounded(), *ask.fixed()))
            except c.SpecError:
                pass
        return Translation(self, ask)


def _outer(ran: set, walked: set) -> bool:
    """Codes that are made inside of one that was walked count as that."""
    known, new = set(), set(walked)
    while new:
        known |= new
        new = {part for code in new for part in code.co_consts if hasattr(part, "co_code")} - known
    return ran <= known


class Asked:
    """What a call asks for beside its mods: what a text depends on."""

    __slots__ = ("sizes", "scale", "block", "results")

    def __init__(self, sizes: Sizes, scale, block, results: tuple[str, ...]):
        self.sizes, self.scale, self.block, self.results = sizes, scale, block, results

    def fixed(self):
        return (self.scale, self.block, self.results)


class Translation:
    """A spec of two mods, and how its inputs come from captured tensors."""

    def __init__(self, traced: Traced, ask: Asked, numbers: dict | None = None):
        self.asked = ask
        inputs = Inputs(traced.names, traced.float_dtype)
        parts = Parts(traced.score, traced.mask, inputs, ask.sizes)
        parts.scale, parts.block, parts.numbers = ask.scale, ask.block, numbers
        parts.with_maximum = "max_scores" in ask.results
        self.text = parts.text()
        self.inputs = inputs.unique()
        self.function = None

    def serves(self, ask: Asked) -> bool:
        """The same dims, and no integer that a longer one would let grow."""
        if ask.fixed() != self.asked.fixed():
            return False
        now, then = ask.sizes.by_name, self.asked.sizes.by_name
        if now == then:
            return True
        return not self.inputs and None not in then.values() and all(now[n] <= then[n] for n in now)

    def call(self, seen: Seen, q, k, v, tables):
        if self.function is None:
            self.function = wrap(_op_of(self.text), results=self.asked.results)
        tensor_of = lambda node: node.tensor if node.slot < 0 else seen.tensors[node.slot]  # noqa: E731
        given = {i.name: _as_operand(evaluate(i.node, tensor_of), i, q) for i in self.inputs}
        for name, table in tables.items():
            given[name] = table.expand(q.shape[0], q.shape[1], *table.shape[2:])
        return self.function(q, k, v, q_start=0, **given)


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


def _say_once(what: str, mod) -> None:
    """That a mod costs more than it must."""
    file, line = place_of(mod)
    if (file, line) not in _said:
        _said.add((file, line))
        warnings.warn(f"{file}:{line}: {what} cannot be watched, so this mod is traced at each call, which takes some "
                      "milliseconds; let it read plain numbers, tensors and attributes", stacklevel=4)  # fmt: skip


def _traced(score_mod, mask_mod, float_dtype, device) -> tuple[Traced, Seen]:
    seen = watch(score_mod, mask_mod)
    if seen.opaque:
        _say_once(seen.opaque, score_mod or mask_mod)
        return Traced(score_mod, mask_mod, seen, float_dtype, device), seen
    key = (tuple(seen.key), float_dtype, device)
    found = _graphs.get(key)
    if found is None:
        found = Traced(score_mod, mask_mod, seen, float_dtype, device)
        if found.is_lasting:
            if len(_graphs) >= _MOST:
                _graphs.clear()
            _graphs[key] = found
        elif place_of(score_mod or mask_mod) in _once:  # twice: no weak reference's callback has come between
            _say_once("a function or a tensor that it finds on its way", score_mod or mask_mod)
        else:
            _once.add(place_of(score_mod or mask_mod))
    return found, seen


def flex_attention(query, key, value, score_mod=None, block_mask=None, scale=None, enable_gqa=False, return_lse=False,
                   kernel_options=None, *, return_aux=None):  # fmt: skip
    """torch.nn.attention.flex_attention on kernels of Lathe: the same arguments, the same results, with gradients.

        o = lathe.torch.flex_attention(q, k, v, score_mod=alibi, block_mask=create_block_mask(causal, ...))
        o = lathe.torch.flex_attention(q, k, v, block_mask=causal)      # a mask_mod alone serves, too

    Mods are called once, on symbols, and become a spec, which `spec_of` prints; they are traced again where a number
    that they read has changed. Tensors that they capture are read at each call, and have gradients where they require
    them. kernel_options are hints for torch's own kernels, and are not looked at. Under torch.compile this call stays
    as it is, between two graphs.
    """
    if _is_compiling():
        return _apart(query, key, value, score_mod, block_mask, scale, enable_gqa, return_lse, kernel_options,
                      return_aux=return_aux)  # fmt: skip
    _check(query, key, value, enable_gqa, block_mask)
    results = _results(return_lse, return_aux)
    blocks = _blocks(block_mask, query, key)
    if key.shape[0] != query.shape[0]:
        key, value = (t.expand(query.shape[0], *t.shape[1:]) for t in (key, value))
    working = torch.float64 if query.dtype is torch.float64 else torch.float32
    traced, seen = _traced(score_mod, blocks.mask_mod, working, query.device)
    sizes = Sizes(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    translation = traced.translation(Asked(sizes, _scale(scale, query), blocks.form, results))
    made = translation.call(seen, query, key, value, blocks.tables)
    return _answer(made, results, return_aux)


_apart = torch.compiler.disable(flex_attention)


def _check(q, k, v, enable_gqa: bool, block_mask) -> None:
    for name, t in (("query", q), ("key", k), ("value", v)):
        say_unusual(name, t)
        if torch._C._functorch.is_gradtrackingtensor(t):
            raise c.UnsupportedError(
                "flex_attention: torch.func's gradients do not go through the tracing of mods; take them by "
                "torch.autograd.grad, or of lathe.torch.wrap(spec_of(...))"
            )
    if q.dim() != 4 or k.dim() != 4 or v.dim() != 4:
        raise c.ArgumentError("flex_attention: expected query, key and value of 4 dims, [b, h, tokens, d]")
    if not enable_gqa and q.shape[1] != k.shape[1]:
        raise c.ArgumentError(
            f"flex_attention: expected as many heads of keys as of queries, given {k.shape[1]} and {q.shape[1]}; "
            "enable_gqa=True for grouped ones"
        )
    if q.shape[0] != k.shape[0] and (k.shape[0] != 1 or block_mask is None):
        raise c.ArgumentError(
            f"flex_attention: expected one batch, given {q.shape[0]} of queries and {k.shape[0]} of keys"
        )


def _blocks(block_mask, q, k) -> Blocks:
    if block_mask is None:
        return Blocks(None)
    if not isinstance(block_mask, flex.BlockMask):
        if callable(block_mask):
            return Blocks(block_mask)
        raise c.ArgumentError(f"block_mask: expected a BlockMask or a mask_mod, given {type(block_mask).__name__}")
    if block_mask.mask_mod is getattr(flex, "_sliced_mask_mod_error", None):
        raise c.ArgumentError(
            "block_mask: a slice of a BlockMask, whose function would see other heads; make one by create_block_mask, "
            "or give the mask_mod itself"
        )
    if block_mask.BLOCK_SIZE[0] < flex._LARGE_SPARSE_BLOCK_SIZE:
        _check_lengths(block_mask, q, k)
    return blocks_of(block_mask)


def _check_lengths(block_mask, q, k) -> None:
    made_for, given = tuple(block_mask.seq_lengths), (q.shape[2], k.shape[2])
    if made_for != given:
        raise c.ArgumentError(
            f"block_mask: made for {made_for[0]} queries and {made_for[1]} keys, given {given[0]} and {given[1]}; make "
            "another, or give its mask_mod in its place, which serves all lengths"
        )
    for name, n, size in zip(("batches", "heads"), heads_of(block_mask), q.shape):
        if n not in (1, size):
            raise c.ArgumentError(f"block_mask: made for {n} {name}, given {size}")


def _scale(scale, q) -> float | None:
    """None where it is the default."""
    usual = 1.0 / math.sqrt(q.shape[-1])
    if scale is None or np.float32(scale) == np.float32(usual):
        return None
    return float(scale)


def _results(return_lse: bool, return_aux) -> tuple[str, ...]:
    if return_lse and return_aux is not None:
        raise c.ArgumentError("flex_attention: expected one of return_lse and return_aux, given both")
    lse = return_lse or bool(return_aux is not None and return_aux.lse)
    maximum = bool(return_aux is not None and return_aux.max_scores)
    return ("o",) + ("lse",) * lse + ("max_scores",) * maximum


def _answer(made, results, return_aux):
    by_name = dict(zip(results, made if isinstance(made, tuple) else (made,)))
    if return_aux is not None:
        largest = by_name.get("max_scores")
        largest = largest.detach() if largest is not None else None  # as torch's own, it has no gradient
        return by_name["o"], _AuxOutput(lse=by_name.get("lse"), max_scores=largest)
    return (by_name["o"], by_name["lse"]) if "lse" in by_name else by_name["o"]


def spec_of(score_mod=None, mask_mod=None, *, scale=None, b=None, h=None, q=None, kv=None, dtype=torch.float32) -> str:
    """The spec that `flex_attention` makes of mods, as the text of a Lua file.

    mask_mod: one, or a BlockMask. b, h, q and kv, the batch, heads and lengths of a call, let captured tensors
    of these sizes have their dims by name, and integers be held against 32 bits.
    """
    block = None
    if isinstance(mask_mod, flex.BlockMask):
        q, kv = q or mask_mod.seq_lengths[0], kv or mask_mod.seq_lengths[1]
        found = blocks_of(mask_mod)
        mask_mod, block = found.mask_mod, found.form
    seen = watch(score_mod, mask_mod)
    device = seen.tensors[0].device if seen.tensors else torch.device("cpu")
    working = torch.float64 if dtype is torch.float64 else torch.float32
    traced = Traced(score_mod, mask_mod, seen, working, device)
    return Translation(traced, Asked(Sizes(b, h, q, kv), scale, block, ("o",)), seen.numbers).text
