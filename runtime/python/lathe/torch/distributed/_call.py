"""`wrap`: a spec as a function of tensors whose tokens are shared out to the ranks of a group."""

from __future__ import annotations

import zlib

import torch

from ... import _layout, _library as c
from ..._numbers import number_of
from ..._op import Op, as_op
from ..._signature import named_arguments, unknown
from .._function import wrap as wrap_one
from . import _attention, _choice, _placed, _ring, _states
from ._problem import PACKED, Problem, check_names
from ._ranks import Ranks
from ._shards import Shards, check_order, even

_RUN = {"heads": _attention.heads, "gather": _attention.gather, "keys": _attention.keys, "ring": _ring.ring,
        "states": _states.states}  # fmt: skip


class Sharded:
    """A spec over several ranks: see `wrap`."""

    def __init__(self, op: Op, group, scheme: str, order: str, queries: str, layout: str, results: tuple[str, ...],
                 offset: str, interleave: int):  # fmt: skip
        self.op, self.group, self.scheme, self.order, self.queries = op, group, scheme, order, queries
        self.layout, self.offset, self.interleave = layout, offset, interleave
        self.whole = wrap_one(op, results=results)  # of one rank
        self._ranks: Ranks | None = None
        self.__doc__ = self.whole.__doc__

    def __repr__(self) -> str:
        return f"<lathe.torch.distributed.Sharded {self.op.name}, scheme {self.scheme}>"

    @property
    def ranks(self) -> Ranks:
        if self._ranks is None:
            self._ranks = Ranks(self.group)
        return self._ranks

    @torch.compiler.disable
    def __call__(self, *args, lengths=None, **named):
        placed = _placed.of_tensors(self, args, named)
        if placed is not None:
            return placed.call()
        return self.answer(self.run(self._bind(args, named), lengths))

    def run(self, given: dict, lengths=None, ranks: Ranks | None = None, heads: tuple[int, int] | None = None,
            whole_q: bool | None = None) -> list:  # fmt: skip
        """given: by name, as the library has dims. heads: the first of all, and how many there are."""
        problem = self._problem(given, lengths, ranks or self.ranks, whole_q)
        if heads:
            problem.h_first, problem.n_h = heads
        if problem.ranks.count == 1:
            return self.alone(given, heads)
        scheme = _choice.choose(self.op, self._sizes(problem), self.scheme)[0].scheme
        return _run_of(scheme)(problem, self.whole.wanted)

    def alone(self, given: dict, heads: tuple[int, int] | None = None) -> list:
        """An ordinary call, of one rank or of some heads of all."""
        places = {"h_start": heads[0], "n_h": heads[1]} if heads else {}
        made = self.whole(**given, **places)
        return list(made) if isinstance(made, tuple) else [made]

    def answer(self, made: list):
        made = [self._turn(self.op.forward.by_name[n], t) for n, t in zip(self.whole.wanted, made)]
        return made[0] if len(made) == 1 else tuple(made)

    def explain(self, *args, lengths="even", **named) -> str:
        """Which scheme serves a call with these tensors, what it sends, and why; nothing is sent. lengths: as of a
        call, but "even" where they are left out."""
        placed = _placed.of_tensors(self, args, named)
        if placed is not None:
            return placed.explain()
        return self.told(self._problem(self._bind(args, named), lengths, self.ranks))

    def told(self, problem: Problem) -> str:
        sizes = self._sizes(problem)
        if sizes.ranks == 1:
            return f"{self.op.name}: one rank, an ordinary call"
        return _choice.told(self.op, sizes, _choice.choose(self.op, sizes, self.scheme), self.scheme)

    # ---- arguments ----------------------------------------------------------------------------------------------

    def _bind(self, args, named, turn: bool = True) -> dict:
        given = named_arguments(self.op.name, self.op.forward.positional, args, named, self._check_known)
        given = {n: x for n, x in given.items() if x is not None}
        check_names(self.op, given)
        return {n: self._turn(self.op.forward.by_name[n], x) if turn else x for n, x in given.items()}

    def _check_known(self, name: str) -> None:
        if name not in self.whole.names and name not in self.whole.numbers:
            raise unknown(self.op, self.whole.names + self.whole.numbers, name, also=("lengths",))

    def _turn(self, argument, x):
        """As the library has its dims, or back: heads and tokens change places."""
        if self.layout == "bhsd" or not isinstance(x, torch.Tensor) or x.dim() != len(argument.dims):
            return x
        return x.permute(_layout.order(self.layout, self.op, argument))

    def _problem(self, given: dict, lengths, ranks: Ranks, whole_q: bool | None = None) -> Problem:
        whole_q = self.queries == "whole" if whole_q is None else whole_q
        tensors = {n: x for n, x in given.items() if isinstance(x, torch.Tensor) and n not in self.whole.numbers}
        numbers = {n: x for n, x in given.items() if n not in tensors}
        for name, x in numbers.items():
            numbers[name] = number_of(name, self.op.forward.by_name[name].dtype, x, exact=True)
        error = self._wrong(tensors)
        if lengths is not None and error is not None:
            raise error
        q_tokens, kv_tokens = self._lengths(tensors, lengths, ranks, error)
        kv_shards = Shards(kv_tokens, self.order, self.interleave)
        of_q = lambda: kv_shards if q_tokens == kv_tokens else Shards(q_tokens, self.order, self.interleave)
        q_shards = None if whole_q else of_q()
        if self.offset:
            given = numbers.get(self.offset, self.op.forward.by_name[self.offset].default)
            numbers[self.offset] = int(given) + kv_shards.runs[ranks.me][0].start
        return Problem(self.op, ranks, tensors, numbers, q_shards, kv_shards)

    def _wrong(self, tensors: dict) -> Exception | None:
        for name in self.op.forward.positional:
            if name not in tensors:
                return c.ArgumentError(f"argument '{name}': missing")
            dims = self.op.forward.by_name[name].dims
            if name in ("q", "k", "v", "q2", "k2") and tensors[name].dim() != len(dims):
                return c.ArgumentError(f"argument '{name}': expected {len(dims)} dims, given {tensors[name].dim()}")
        return None

    def _lengths(self, tensors, lengths, ranks: Ranks, error) -> tuple[tuple, tuple]:
        """Queries and keys of each rank. None: they are sent around, which takes a message and waits for it."""
        tokens = lambda name: tensors[name].shape[2] if name in tensors and tensors[name].dim() > 2 else 0
        # Keys of linear attention may be made of inputs alone, or be several of a token.
        q, kv = tokens("q"), tokens("k" if self.op.kind == "attention" else "q")
        if lengths is None:
            return self._exchanged(tensors, q, kv, ranks, error)
        if isinstance(lengths, str):
            if lengths != "even":
                raise c.ArgumentError(f"lengths: expected tokens of each rank, 'even' or None, given {lengths!r}")
            return (q,) * ranks.count, (kv,) * ranks.count
        nested = len(lengths) == 2 and getattr(lengths[0], "ndim", 0 if isinstance(lengths[0], int) else 1) > 0
        of_q, of_kv = lengths if nested else (lengths, lengths)
        of_q = of_q if self.queries != "whole" else (q,) * ranks.count  # which all have
        for name, n, given in (("q", q, tuple(of_q)), ("k", kv, tuple(of_kv))):
            if len(given) != ranks.count or given[ranks.me] != n:
                raise c.ArgumentError(f"lengths: expected {ranks.count} numbers, and {n} tokens of {name} for rank "
                                      f"{ranks.me}, given {list(given)}")  # fmt: skip
        return tuple(of_q), tuple(of_kv)

    def _exchanged(self, tensors, q: int, kv: int, ranks: Ranks, error):
        device = next((t.device for t in tensors.values()), torch.device("cpu"))
        first = tensors.get("q")
        shape = list(first.shape) if first is not None and first.dim() == 4 else [0] * 4
        mine = {
            "the spec": zlib.crc32(f"{self.op.digest} {self.scheme} {self.order} {self.queries}".encode()),
            "interleave": self.interleave,
            "the arguments given": zlib.crc32(" ".join(sorted(tensors)).encode()),
            "the batch": shape[0], "the heads of q": shape[1], "the elements of a row of q": shape[3],
            "the dtype of q": zlib.crc32(str(first.dtype).encode()) if first is not None else 0,
            "whether there are gradients": int(_train(tensors)),
            "q": q, "kv": kv,
        }  # fmt: skip
        every = ranks.agree(mine, device, error)
        for name in [n for n in mine if n not in ("q", "kv")]:
            other = next((r for r, one in enumerate(every) if one[name] != every[0][name]), None)
            if other is not None:
                raise c.ArgumentError(f"{self.op.name}: {name} of rank {other} and of rank 0 differ")
        return tuple(one["q"] for one in every), tuple(one["kv"] for one in every)

    def _sizes(self, p: Problem) -> _choice.Sizes:
        q = p.q
        v = p.tensors.get("v", p.tensors.get("k"))
        return _choice.Sizes(
            ranks=p.ranks.count, b=q.shape[0], h=p.heads, h_kv=p.key_heads, q=p.queries, kv=p.kv_shards.total,
            d=q.shape[3], d_v=v.shape[3], bytes=q.element_size(), whole_q=p.q_shards is None,
            row_q=_row(p, ("q", "q2")), row_kv=_row(p, p.keys),
            wide_kv=_row(p, p.keys, 8 if q.element_size() == 8 else 4),
            zigzag=self.order == "zigzag", interleaved=self.order == "interleaved",
            packed=any(n in p.tensors for n in PACKED), trains=p.trains,
            offset=bool(self.offset), behind="state_out" in self.whole.wanted or "norm_out" in self.whole.wanted,
        )  # fmt: skip


def _row(p: Problem, names, size: int = 0) -> int:
    """Bytes of a row of these operands together; size: of an element of each, if it is not its own."""
    return sum(p.tensors[n].shape[3] * (size or p.tensors[n].element_size()) for n in names if n in p.tensors)


def _train(tensors: dict) -> bool:
    return torch.is_grad_enabled() and any(t.requires_grad for t in tensors.values())


def _run_of(scheme: str):
    return _RUN[scheme]


def wrap(op: Op | str, group=None, *, scheme: str = "auto", order: str = "contiguous", queries: str = "cut",
         layout: str = "bhsd", results: str | tuple[str, ...] = (), offset: str = "",
         interleave: int = 0) -> Sharded:  # fmt: skip
    """A spec as a function of tensors that are shared out to the ranks of a group, with gradients.

        attend = lathe.torch.distributed.wrap("causal", mesh["cp"])    # a ProcessGroup, a DeviceMesh of one dim
        o = attend(q, k, v)                                            # own tokens [b, h, s / ranks, d] in and out

    Tensors of operands are the rank's own tokens, in `order`: "contiguous", rank after rank, as many as each has;
    "zigzag": 2 pieces a rank, of which causal masks make even work; "interleaved", of scheme "keys": of chunks of
    `interleave` keys rank r has number r, r + ranks, ..., so that a cache grows on all ranks in turn. Inputs of the
    spec over queries, keys and heads are whole, the same on every rank (`gather` makes them so), those of linear
    attention over tokens are the rank's own. Gradients of operands are whole; those of whole inputs are the share of
    this rank, to be summed over the ranks as those of a model's parameters are (DDP, FSDP). Random numbers, positions,
    at.h are those of one call of all.

    scheme: "heads" (all-to-all, all tokens of some heads), "gather" (k and v of all ranks), "ring" (k and v of one rank
    at a time, while the next ones are under way), "states" (linear attention), "keys" (decoding: queries="whole", each
    rank has all queries and a shard of the cache); "auto" takes the one that sends least, gather where a ring sends as
    much: `attend.explain(q, k, v)`. offset: of linear attention, the i32 scalar that the spec adds
    to at.pos, as `flao_lrpe` does; where a rank's tokens begin is added to it.

    A call takes lengths=: tokens of each rank, or (queries, keys); "even"; None: ranks tell each other, and check that
    they make the same call, for which the host waits. DTensors say where they are cut themselves. Under torch.compile
    a call is a break of the graph.
    """
    op = as_op(op)
    if op.kind not in ("attention", "linear_attention"):
        raise c.ArgumentError(f"{op.name}: a spec of {op.kind}, whose rows know nothing of each other; shard its "
                              "tensors and call lathe.torch.wrap on every rank")  # fmt: skip
    _one_of("scheme", scheme, ("auto", *_choice.SCHEMES))
    check_order(order, interleave)
    _one_of("queries", queries, ("cut", "whole"))
    _one_of("layout", layout, ("bhsd", "bshd"))
    results = (results,) if isinstance(results, str) else tuple(results)
    for name in results if op.kind == "linear_attention" else ():
        if name not in _states.RESULTS:
            known = ", ".join(_states.RESULTS)
            raise c.UnsupportedError(f"results: '{name}': of tokens that are cut there are {known}; give every rank "
                                     "whole sequences, and call lathe.torch.wrap")  # fmt: skip
    if order == "interleaved" and op.kind == "linear_attention":
        raise c.UnsupportedError("order: 'interleaved' is of caches of attention; a state goes through tokens in their "
                                 "order: 'contiguous'")  # fmt: skip
    if offset and (op.kind != "linear_attention" or offset not in {a.name for a in op.forward.scalars if a.is_input}):
        raise c.ArgumentError(f"offset: expected a scalar of a spec of linear attention, given {offset!r}")
    return Sharded(op, group, scheme, order, queries, layout, results, offset, interleave)


def _one_of(name: str, given, known) -> None:
    if given not in known:
        raise c.ArgumentError(f"{name}: expected one of {', '.join(known)}, given {given!r}")


__all__ = ["Sharded", "even", "wrap"]
