"""Tensors over tokens, whole and cut: what a model does ahead of attention and behind it."""

from __future__ import annotations

from ._moves import Gather
from ._ranks import Ranks
from ._shards import Shards, check_order, chunked, even


def shard(x, dim: int, group=None, *, order: str = "contiguous", interleave: int = 0):
    """This rank's tokens of a tensor that every rank has whole, such as the ids of a batch; lengths are those of
    torch.chunk, or those that chunks of `interleave` tokens leave (order "interleaved")."""
    check_order(order, interleave)
    ranks, total = Ranks(group), x.shape[dim]
    lengths = chunked(total, ranks.count, interleave) if interleave else even(total, ranks.count)
    return Shards(lengths, order, interleave).take(x, dim, ranks.me)


def gather(x, dim: int, group=None, *, order: str = "contiguous", lengths=None, interleave: int = 0):
    """All tokens, of every rank's own: for an input of a spec that is made from tokens, as gates. Gradients are shares
    of ranks, and their owners add them up. lengths: as of a call."""
    check_order(order, interleave)
    ranks = Ranks(group)
    dim %= x.dim()
    if lengths is None:
        lengths = [one["n"] for one in ranks.agree({"n": x.shape[dim]}, x.device)]
    elif lengths == "even":
        lengths = [x.shape[dim]] * ranks.count
    return Gather.apply(ranks, Shards(lengths, order, interleave), dim, x)[0]
