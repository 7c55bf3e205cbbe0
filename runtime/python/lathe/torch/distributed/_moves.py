"""Tensors that change hands, as functions of autograd: the gradient of each is another of them.

Each moves several tensors of one dtype at once, [b, heads, tokens, ..]: a collective costs its latency.
"""

from __future__ import annotations

import torch

from ._ranks import Ranks
from ._shards import Shards


class Cut:
    """How one tensor is cut: its tokens by `shards`, its heads by how many each rank has."""

    def __init__(self, shards: Shards, heads: tuple[int, ...]):
        self.shards = shards
        self.heads = heads


def _to_heads(ranks: Ranks, cuts, xs) -> tuple:
    """Own tokens of all heads -> all tokens of own heads."""
    split = [x.split(cut.heads, 1) for x, cut in zip(xs, cuts)]
    send = [[s[r] for s in split] for r in range(ranks.count)]
    shapes = [
        [_sized(x, cut.heads[ranks.me], cut.shards.lengths[r]) for x, cut in zip(xs, cuts)]
        for r in range(ranks.count)
    ]
    come = ranks.exchange(send, shapes, xs[0].dtype, xs[0].device)
    return tuple(cut.shards.join([c[i] for c in come], 2) for i, cut in enumerate(cuts))


def _to_tokens(ranks: Ranks, cuts, xs) -> tuple:
    """All tokens of own heads -> own tokens of all heads."""
    send = [[cut.shards.take(x, 2, r) for x, cut in zip(xs, cuts)] for r in range(ranks.count)]
    shapes = [
        [_sized(x, cut.heads[r], cut.shards.lengths[ranks.me]) for x, cut in zip(xs, cuts)]
        for r in range(ranks.count)
    ]
    come = ranks.exchange(send, shapes, xs[0].dtype, xs[0].device)
    return tuple(torch.cat([c[i] for c in come], 1) for i in range(len(cuts)))


def _sized(x, heads: int, tokens: int) -> tuple:
    return (x.shape[0], heads, tokens, *x.shape[3:])


class ToHeads(torch.autograd.Function):
    @staticmethod
    def forward(ctx, ranks, cuts, *xs):
        ctx.of = ranks, cuts
        return _to_heads(ranks, cuts, xs)

    @staticmethod
    def backward(ctx, *gradients):
        return None, None, *_to_tokens(*ctx.of, gradients)


class ToTokens(torch.autograd.Function):
    @staticmethod
    def forward(ctx, ranks, cuts, *xs):
        ctx.of = ranks, cuts
        return _to_tokens(ranks, cuts, xs)

    @staticmethod
    def backward(ctx, *gradients):
        return None, None, *_to_heads(*ctx.of, gradients)


class Gather(torch.autograd.Function):
    """Own tokens -> all tokens. Gradients are shares, which their owners add up."""

    @staticmethod
    def forward(ctx, ranks, shards, dim, *xs):
        ctx.of = ranks, shards, dim
        lengths = shards.lengths
        shapes = [[(*x.shape[:dim], n, *x.shape[dim + 1 :]) for x in xs] for n in lengths]
        come = ranks.gather(list(xs), shapes, xs[0].dtype, xs[0].device)
        return tuple(shards.join([c[i] for c in come], dim) for i in range(len(xs)))

    @staticmethod
    def backward(ctx, *gradients):
        ranks, shards, dim = ctx.of
        send = [[shards.take(g, dim, r) for g in gradients] for r in range(ranks.count)]
        return None, None, None, *ranks.sums(send, gradients[0].dtype, gradients[0].device)
