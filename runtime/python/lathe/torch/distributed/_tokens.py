"""Tensors over tokens, whole and cut: what a model does ahead of attention and behind it."""

from __future__ import annotations

from ... import _library as c
from ._moves import Gather
from ._ranks import Ranks
from ._shards import ORDERS, Shards, even


def shard(x, dim: int, group=None, *, order: str = "contiguous"):
    """This rank's tokens of a tensor that every rank has whole, such as the ids of a batch; lengths are those of
    torch.chunk."""
    ranks = Ranks(group)
    return Shards(even(x.shape[dim], ranks.count), _checked(order)).take(x, dim, ranks.me)


def gather(x, dim: int, group=None, *, order: str = "contiguous", lengths=None):
    """All tokens, of every rank's own: for an input of a spec that is made from tokens, as gates. Gradients are shares
    of ranks, and their owners add them up. lengths: as of a call."""
    ranks = Ranks(group)
    dim %= x.dim()
    if lengths is None:
        lengths = [one["n"] for one in ranks.agree({"n": x.shape[dim]}, x.device)]
    elif lengths == "even":
        lengths = [x.shape[dim]] * ranks.count
    return Gather.apply(ranks, Shards(lengths, _checked(order)), dim, x)[0]


def _checked(order: str) -> str:
    if order not in ORDERS:
        raise c.ArgumentError(f"order: expected one of {', '.join(ORDERS)}, given {order!r}")
    return order
