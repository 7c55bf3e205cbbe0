"""Attention over several ranks: what each of them computes is an ordinary call with its place among all."""

from __future__ import annotations

import torch

from ..._arrays import HOST
from ..._kernel import context_of
from .._function import wrap
from ._moves import Cut, Gather, ToHeads, ToTokens
from ._problem import Problem
from ._shards import Run, split_heads


def context_for(tensor):
    """That of calls of an op, as lathe.torch has it."""
    index = tensor.device.index if tensor.device.type == "cuda" else HOST
    return context_of(index, torch.are_deterministic_algorithms_enabled())


def heads(p: Problem, results: tuple[str, ...]) -> list:
    """All tokens of some heads: q, k and v change hands, and o does on the way back."""
    ranks = p.ranks
    groups = split_heads(p.key_heads, ranks.count)
    each = p.heads // p.key_heads
    of_q = Cut(p.q_shards, tuple(each * n for n in groups))
    of_k = Cut(p.kv_shards, groups)
    cut = lambda n: of_q if n in ("q", "q2") else of_k
    moved = _moved(p, p.operands, lambda names, xs: ToHeads.apply(ranks, [cut(n) for n in names], *xs))
    first = each * sum(groups[: ranks.me])
    q_start = {} if p.packed or p.numbers.get("q_start") is None else {"q_start": p.q_start}
    own = of_q.heads[ranks.me]
    made = _made(wrap(p.op, results=results)(**moved, **p.inputs, **p.others, **q_start, **p.places(first, own)))
    return _back(ranks, of_q, made)


def _moved(p: Problem, names: tuple[str, ...], move) -> dict:
    """Operands as `move` makes them, those of one dtype together: keys may be of 8 bits beside queries of 16."""
    moved = {}
    for dtype in dict.fromkeys(p.tensors[n].dtype for n in names):
        alike = [n for n in names if p.tensors[n].dtype == dtype]
        moved |= dict(zip(alike, move(alike, [p.tensors[n] for n in alike])))
    return moved


def _back(ranks, cut: Cut, made: list) -> list:
    """Results go back to the ranks of their queries, those of one dtype together."""
    for dtype in dict.fromkeys(t.dtype for t in made):
        places = [i for i, t in enumerate(made) if t.dtype == dtype]
        turned = ToTokens.apply(ranks, [cut] * len(places), *(made[i] for i in places))
        for i, t in zip(places, turned):
            made[i] = t
    return made


def gather(p: Problem, results: tuple[str, ...]) -> list:
    """All keys, and own queries: k and v of all ranks are gathered, their gradients go back as sums."""
    moved = _moved(p, p.keys, lambda names, xs: Gather.apply(p.ranks, p.kv_shards, 2, *xs))
    function = wrap(p.op, results=results)
    made = []
    for run in p.q_shards.runs[p.ranks.me]:
        of_q = {n: p.tensors[n].narrow(2, run.local, run.length) for n in ("q", "q2") if n in p.tensors}
        inputs = {n: p.rows_of(n, run.start, run.length) for n in p.inputs}
        made.append(_made(function(**of_q, **moved, **inputs, **p.others, q_start=p.q_start + run.start,
                                   **p.places())))  # fmt: skip
    return made[0] if len(made) == 1 else [torch.cat(rows, 2) for rows in zip(*made)]


def _made(results) -> list:
    return list(results) if isinstance(results, tuple) else [results]


def keys(p: Problem, results: tuple[str, ...]) -> list:
    """All queries on every rank, and own keys: parts of rows are gathered and merged, everywhere alike."""
    ranks, op = p.ranks, p.op
    context = context_for(p.q)
    places = p.places() | {"q_start": p.q_start, "len_kv": p.kv_shards.total}
    of_q = {n: p.tensors[n] for n in ("q", "q2") if n in p.tensors}
    parts = []
    for own, where in _keys_of_rank(p):
        parts.append(op.parts(**of_q, **own, **p.inputs, **p.others, **places, **where, context=context))
    mine = [torch.stack(list(part)) for part in zip(*parts)]
    shapes = [[t.shape for t in mine]] * ranks.count
    come = ranks.gather(mine, shapes, mine[0].dtype, mine[0].device)
    return combined(p, results, *(torch.cat(list(part)) for part in zip(*come)))


def _keys_of_rank(p: Problem) -> list:
    """Keys of this rank and where they are among all, a call for each pair."""
    me, chunk = p.ranks.me, p.kv_shards.chunk
    if chunk:
        return [({n: p.tensors[n] for n in p.keys},
                 {"kv_start": me * chunk, "kv_chunk": chunk, "kv_step": p.ranks.count * chunk})]  # fmt: skip
    return [({n: p.tensors[n].narrow(2, run.local, run.length) for n in p.keys}, {"kv_start": run.start})
            for run in p.kv_shards.runs[me]]  # fmt: skip


def combined(p: Problem, results, part_o, part_rows, run: Run | None = None) -> list:
    """Parts put together, o in the dtype of q. run: queries that they are of, if not all."""
    joining = p.op.joining.by_name
    inputs = p.inputs if run is None else {n: p.rows_of(n, run.start, run.length) for n in p.inputs}
    places = {"q_start": p.q_start + (run.start if run else 0)}
    takes = {n: t for n, t in {**inputs, **p.numbers, **places}.items() if n in joining}
    o = torch.empty(part_o.shape[1:], dtype=p.q.dtype, device=p.q.device)
    wanted = {n: True for n in results if n != "o"}
    made = p.op.combine(part_o, part_rows, o=o, **wanted, **takes, **p.places(), context=context_for(p.q))
    by_name = made._asdict() if wanted else {"o": o}
    return [by_name.get(n, o) for n in results]
