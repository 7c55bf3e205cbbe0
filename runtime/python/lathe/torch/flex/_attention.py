"""flex_attention: FlexAttention's call on kernels of Lathe."""

from __future__ import annotations

import functools
import math
import warnings

import torch
from torch.nn.attention import flex_attention as flex

from ... import _library as c
from ..._watched import say_unusual
from .._register import PLAIN
from ._blocks import Blocks, blocks_of, heads_of
from ._compiled import can_trace, in_graph
from ._inputs import Sizes
from ._open import Numbers
from ._shared import Sharing, Whole
from ._spec import KNOWN
from ._trace import place_of, trace
from ._translation import Request, Traced, Translation, scale_of
from ._watch import Place, Seen, opened, watch

_SCORE = ("s", "b", "h", "q", "kv")
_MASK = _SCORE[1:]
_MOST = 1024  # traces that are kept
_AuxRequest = getattr(flex, "AuxRequest", None)
_AuxOutput = getattr(flex, "AuxOutput", None)
_is_compiling = torch.compiler.is_compiling
_CONSTANTS = 3  # sets of numbers of one mod that are constants of specs: layers may have a window each
_TYPES = {"isinstance", "type", "is_integer", "repr", "str"}
_graphs: dict = {}
_changing: dict = {}  # by what mods read, but for the values of numbers
_once: set = set()  # places of mods whose first trace was not kept
_said: set = set()


def _outer(ran: set, walked: set) -> bool:
    """Codes that are made inside of one that was walked count as that."""
    known, new = set(), set(walked)
    while new:
        known |= new
        new = {part for code in new for part in code.co_consts if hasattr(part, "co_code")} - known
    return ran <= known


def _say_once(what: str, mod) -> None:
    """That a mod costs more than it must."""
    file, line = place_of(mod)
    if (file, line) not in _said:
        _said.add((file, line))
        warnings.warn(f"{file}:{line}: {what} cannot be watched, so this mod is traced at each call, which takes some "
                      "milliseconds; let it read plain numbers, tensors and attributes", stacklevel=4)  # fmt: skip


def _trace(score_mod, mask_mod, seen: Seen, float_dtype, device, left_open: tuple[Place, ...] = ()) -> Traced:
    """Of functions of Python, with the places of what they capture in what `watch` has found. left_open: of numbers
    that become scalars."""
    numbers = Numbers() if left_open else None
    if left_open:
        by_function: dict = {}
        for slot, place in enumerate(left_open):
            of = by_function.setdefault(id(place.function), {})
            of[place.name] = numbers.new(type(place.value) is int, slot)
        known: dict = {}
        score_mod, mask_mod = (opened(f, by_function, known) for f in (score_mod, mask_mod))
    score = trace(score_mod, _SCORE, float_dtype, device, KNOWN, (), numbers) if score_mod else None
    mask = trace(mask_mod, _MASK, float_dtype, device, KNOWN, (), numbers) if mask_mod else None
    graphs = [g for g in (score, mask) if g]
    places = {id(t): i for i, t in enumerate(seen.tensors)}
    captured = [n for g in graphs for n in g.captured]
    names = [place.name for place in left_open]
    made = Traced(score, mask, seen.labels, float_dtype, numbers=numbers, number_names=names.__getitem__)
    # Has no function run that the walk has not looked into?
    is_watched = all(g.codes is not None and _outer(g.codes, seen.codes) for g in graphs)
    made.is_lasting = not seen.opaque and all(id(n.tensor) in places for n in captured) and is_watched
    for node in captured:
        node.settle(places.get(id(node.tensor), -1), made.is_lasting)
    made.held = seen.held
    return made


class Changing:
    """The numbers of mods that are alike but for them: what was constant in a few specs is left open in the next."""

    __slots__ = ("values", "most", "slots")

    def __init__(self):
        self.values: list[tuple] = []
        self.most: float = _CONSTANTS  # sets of values; infinite where Python decides by them
        self.slots: set[int] = set()  # of numbers that have changed


def _changing_of(seen: Seen, key: tuple) -> Changing:
    form = list(key[0])
    for place in seen.places:
        form[place.at] = type(place.value)
    if len(_changing) >= _MOST:
        _changing.clear()
    return _changing.setdefault((tuple(form), *key[1:]), Changing())


def _left_open(seen: Seen, key: tuple) -> tuple[Place, ...]:
    """Numbers that have changed in calls that were like this one but for them, where there were several."""
    if not seen.places or any(_asks_for_types(code) for code in seen.codes):
        return ()
    known = _changing_of(seen, key)
    values = tuple([repr(place.value) for place in seen.places])
    if len(known.values) < known.most:
        if len(known.values) < _CONSTANTS and values not in known.values:
            known.values.append(values)
        return ()
    for then in known.values:
        known.slots.update(i for i, value in enumerate(values) if value != then[i])
    return tuple(seen.places[i] for i in sorted(known.slots))


@functools.lru_cache(maxsize=_MOST)
def _asks_for_types(code) -> bool:
    """Would a symbol be taken for something else than the number?"""
    return not _TYPES.isdisjoint(code.co_names)


def _traced(score_mod, mask_mod, float_dtype, device) -> tuple[Traced, Seen, tuple[Place, ...]]:
    seen = watch(score_mod, mask_mod)
    if seen.opaque:
        _say_once(seen.opaque, score_mod or mask_mod)
        return _trace(score_mod, mask_mod, seen, float_dtype, device), seen, ()
    key = (tuple(seen.key), float_dtype, device)
    found = _graphs.get(key)
    if found is not None:
        return found, seen, ()
    left_open = _left_open(seen, key)
    if left_open:
        form = list(seen.key)
        for place in left_open:
            form[place.at] = Place
        open_key = (tuple(form), *key[1:])
        found = _graphs.get(open_key) or _open_trace(score_mod, mask_mod, seen, float_dtype, device, left_open)
        if found is not None:
            _keep(open_key, found)
            return found, seen, left_open
        _changing_of(seen, key).most = math.inf
    found = _trace(score_mod, mask_mod, seen, float_dtype, device)
    if found.is_lasting:
        _keep(key, found)
    elif place_of(score_mod or mask_mod) in _once:  # twice: no weak reference's callback has come between
        _say_once("a function or a tensor that it finds on its way", score_mod or mask_mod)
    else:
        _once.add(place_of(score_mod or mask_mod))
    return found, seen, ()


def _open_trace(*args) -> Traced | None:
    """None where Python decides by the numbers. Twice: the first of its kind in a process may import what torch needs,
    and be taken for one that has run what nobody has watched."""
    for _ in range(2):
        try:
            found = _trace(*args)
        except c.SpecError:
            return None
        if found.is_lasting:
            return found
    return None


def _keep(key, traced: Traced) -> None:
    if len(_graphs) >= _MOST:
        _graphs.clear()
    _graphs[key] = traced


def flex_attention(query, key, value, score_mod=None, block_mask=None, scale=None, enable_gqa=False, return_lse=False,
                   kernel_options=None, *, return_aux=None, group=None, scheme="auto", order="contiguous",
                   lengths=None):  # fmt: skip
    """torch.nn.attention.flex_attention on kernels of Lathe: the same arguments, the same results, with gradients.

        o = lathe.torch.flex_attention(q, k, v, score_mod=alibi, block_mask=create_block_mask(causal, ...))
        o = lathe.torch.flex_attention(q, k, v, block_mask=causal)      # a mask_mod alone serves, too

    Mods are called once, on symbols, and become a spec, which `spec_of` prints; they are traced again where a number
    that they read has changed. Tensors that they capture are read at each call, and have gradients where they require
    them. kernel_options are hints for torch's own kernels, and are not looked at. Under torch.compile it is an operator
    of the graph (fullgraph=True), and numbers that change become scalars, so that nothing is compiled for them.

    group: a ProcessGroup, or a DeviceMesh of one dim: query, key and value are this rank's tokens of all, by scheme and
    order, and lengths says how many each has, as `lathe.torch.distributed.wrap` explains. Mods see the positions of all
    tokens; a BlockMask is made for all, and captured tensors are whole, with this rank's share of their gradients.
    """
    results = _results(return_lse, return_aux)
    if group is not None:
        sharing = Sharing(group, scheme, order, lengths)
        made = _outside_of_graphs(query, key, value, score_mod, block_mask, scale, enable_gqa, results, sharing)
    elif not _is_compiling():
        made = run_eagerly(query, key, value, score_mod, block_mask, scale, enable_gqa, results)
    elif can_trace:
        _check(query, key, value, enable_gqa, block_mask)
        _check_blocks(block_mask, query, (query.shape[2], key.shape[2]))
        made = in_graph(query, key, value, score_mod, block_mask, scale, results)
    else:
        made = _outside_of_graphs(query, key, value, score_mod, block_mask, scale, enable_gqa, results)
    return _answer(made, results, return_aux)


def run_eagerly(query, key, value, score_mod, block_mask, scale, enable_gqa, results, sharing=Whole()):
    for name, t in (("query", query), ("key", key), ("value", value)):
        _check_tensor(name, t)
    _check(query, key, value, enable_gqa, block_mask)
    lengths = sharing.lengths_of(query, key)
    blocks = _blocks(block_mask, query, lengths)
    if key.shape[0] != query.shape[0]:
        key, value = (t.expand(query.shape[0], *t.shape[1:]) for t in (key, value))
    working = torch.float64 if query.dtype is torch.float64 else torch.float32
    traced, seen, left_open = _traced(score_mod, blocks.mask_mod, working, query.device)
    form = (query.shape[:2], query.shape[3], lengths, query.dtype, scale, blocks.form, results)
    translation = traced.served.get(form)
    if translation is None:
        sizes = Sizes(query.shape[0], query.shape[1], *lengths)
        translation = traced.translation(Request(sizes, scale_of(scale, query), blocks.form, results))
        if len(traced.served) >= _MOST:
            traced.served.clear()
        traced.served[form] = translation
    numbers = (lambda slot: left_open[slot].value) if left_open else None
    return translation.call(seen.tensors, numbers, query, key, value, blocks.tables, sharing)


_outside_of_graphs = torch.compiler.disable(run_eagerly)


def _check_tensor(name: str, t) -> None:
    if type(t) not in PLAIN or t.is_nested or t.layout is not torch.strided:
        say_unusual(name, t)
    if torch._C._functorch.is_gradtrackingtensor(t):
        raise c.UnsupportedError(
            "flex_attention: torch.func's gradients do not go through the tracing of mods; take them by "
            "torch.autograd.grad, or of lathe.torch.wrap(spec_of(...))"
        )


def _check(q, k, v, enable_gqa: bool, block_mask) -> None:
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


def _blocks(block_mask, q, lengths: tuple[int, int]) -> Blocks:
    _check_blocks(block_mask, q, lengths)
    return blocks_of(block_mask) if isinstance(block_mask, flex.BlockMask) else Blocks(block_mask)


def _check_blocks(block_mask, q, lengths: tuple[int, int]) -> None:
    if not isinstance(block_mask, flex.BlockMask):
        if block_mask is None or callable(block_mask):
            return
        raise c.ArgumentError(f"block_mask: expected a BlockMask or a mask_mod, given {type(block_mask).__name__}")
    if block_mask.mask_mod is getattr(flex, "_sliced_mask_mod_error", None):
        raise c.ArgumentError(
            "block_mask: a slice of a BlockMask, whose function would see other heads; make one by create_block_mask, "
            "or give the mask_mod itself"
        )
    if block_mask.BLOCK_SIZE[0] < flex._LARGE_SPARSE_BLOCK_SIZE:
        _check_lengths(block_mask, q, lengths)


def _check_lengths(block_mask, q, given: tuple[int, int]) -> None:
    made_for = tuple(block_mask.seq_lengths)
    if made_for != given:
        raise c.ArgumentError(
            f"block_mask: made for {made_for[0]} queries and {made_for[1]} keys, given {given[0]} and {given[1]}; make "
            "another, or give its mask_mod in its place, which serves all lengths"
        )
    for name, n, size in zip(("batches", "heads"), heads_of(block_mask), q.shape):
        if n not in (1, size):
            raise c.ArgumentError(f"block_mask: made for {n} {name}, given {size}")


def _results(return_lse: bool, return_aux) -> tuple[str, ...]:
    if return_lse and return_aux is not None:
        raise c.ArgumentError("flex_attention: expected one of return_lse and return_aux, given both")
    lse = return_lse or bool(return_aux is not None and return_aux.lse)
    maximum = bool(return_aux is not None and return_aux.max_scores)
    return ("o",) + ("lse",) * lse + ("max_scores",) * maximum


def _answer(made, results, return_aux):
    if results == ("o",) and return_aux is None:
        return made[0] if isinstance(made, tuple) else made
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
    traced = _trace(score_mod, mask_mod, seen, working, device)
    return Translation(traced, Request(Sizes(b, h, q, kv), scale, block, ("o",)), seen.numbers).text
