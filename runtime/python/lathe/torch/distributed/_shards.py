"""Which rank has which tokens of all."""

from __future__ import annotations

from typing import NamedTuple, Sequence

import torch

from ... import _library as c

ORDERS = ("contiguous", "zigzag", "interleaved")
I32_MOST = 2**31 - 1  # as lathe_dist.h has it: the chunks of all ranks are so many tokens at most


class Run(NamedTuple):
    """Tokens of a rank that are neighbours: from `local` among its own, from `start` among all."""

    local: int
    start: int
    length: int


class Shards:
    """Tokens along one dim, shared out. contiguous: rank 0 has the first ones, and so on. zigzag: of 2 ranks pieces of
    one length rank r has number r and number 2 ranks - 1 - r, so that a causal mask leaves all as much to do.
    interleaved: of chunks of `chunk` tokens rank r has number r, r + ranks, r + 2 ranks, ...: a cache that grows by a
    token grows on all ranks in turn."""

    def __init__(self, lengths: Sequence[int], order: str = "contiguous", chunk: int = 0):
        self.lengths = tuple(int(n) for n in lengths)
        self.order = order
        self.chunk = chunk
        self.total = sum(self.lengths)
        if order == "interleaved":
            self.runs = _interleaved(self.lengths, chunk)
        else:
            self.runs = _zigzag(self.lengths) if order == "zigzag" else _contiguous(self.lengths)

    def take(self, x, dim: int, rank: int):
        """The tokens of a rank out of all of them."""
        parts = [x.narrow(dim, run.start, run.length) for run in self.runs[rank]]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim)

    def join(self, parts: Sequence, dim: int):
        """Those of all ranks -> all, in the order of their positions."""
        pieces = [(run.start, r, run) for r, runs in enumerate(self.runs) for run in runs]
        pieces.sort(key=lambda piece: piece[:2])
        return torch.cat([parts[r].narrow(dim, run.local, run.length) for _, r, run in pieces], dim)


def _contiguous(lengths):
    starts = [sum(lengths[:r]) for r in range(len(lengths))]
    return [(Run(0, start, n),) for start, n in zip(starts, lengths)]


def _zigzag(lengths):
    n, ranks = lengths[0], len(lengths)
    if any(m != n for m in lengths) or n % 2:
        raise c.ArgumentError(f"order: 'zigzag' takes as many tokens on every rank, an even number; given {lengths}")
    half = n // 2
    return [(Run(0, r * half, half), Run(half, (2 * ranks - 1 - r) * half, half)) for r in range(ranks)]


def _interleaved(lengths, chunk: int):
    ranks, total = len(lengths), sum(lengths)
    if chunk > I32_MOST // ranks:
        raise c.ArgumentError(f"interleave: expected the tokens of a chunk, 1 to {I32_MOST // ranks}, given {chunk}")
    wanted = chunked(total, ranks, chunk)
    if tuple(lengths) != wanted:
        raise c.ArgumentError(f"order: chunks of {chunk} of all {total} tokens leave ranks {list(wanted)} of them; "
                              f"given {list(lengths)}")  # fmt: skip
    starts = [range(r * chunk, total, ranks * chunk) or [total] for r in range(ranks)]
    return [[Run(i * chunk, start, min(chunk, total - start)) for i, start in enumerate(of)] for of in starts]


def chunked(total: int, ranks: int, chunk: int) -> tuple[int, ...]:
    """Tokens of each rank, of interleaved chunks."""
    turn = ranks * chunk
    return tuple(total // turn * chunk + max(min(total % turn - r * chunk, chunk), 0) for r in range(ranks))


def check_order(order: str, chunk: int) -> None:
    if order not in ORDERS:
        raise c.ArgumentError(f"order: expected one of {', '.join(ORDERS)}, given {order!r}")
    if type(chunk) is not int or (chunk < 1 if order == "interleaved" else chunk != 0):
        beside = "the tokens of a chunk, 1 or more, beside" if order == "interleaved" else "0 beside"
        raise c.ArgumentError(f"interleave: expected {beside} order={order!r}, given {chunk!r}")


def even(total: int, ranks: int) -> tuple[int, ...]:
    """As torch.chunk and DTensor share out: the last ranks may have less, or none."""
    each = -(-total // ranks)
    return tuple(max(min(each, total - r * each), 0) for r in range(ranks))


def split_heads(groups: int, ranks: int) -> tuple[int, ...]:
    """Key heads of each rank: they differ by one at most."""
    return tuple(groups // ranks + (r < groups % ranks) for r in range(ranks))
