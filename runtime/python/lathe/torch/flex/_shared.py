"""Calls whose tokens are shared out to ranks: mods are translated for all tokens, and called by
lathe.torch.distributed.
"""

from __future__ import annotations


class Whole:
    """A call that has all tokens."""

    is_cut = False

    def lengths_of(self, q, k) -> tuple[int, int]:
        return q.shape[2], k.shape[2]


class Sharing:
    """group, scheme, order, lengths: as of `lathe.torch.distributed.wrap` and the calls of what it makes."""

    is_cut = True

    def __init__(self, group, scheme: str, order: str, lengths):
        from ..distributed._call import wrap
        from ..distributed._ranks import Ranks

        self.ranks = Ranks(group)
        self.lengths = lengths
        self.wrap = lambda op, results: wrap(op, group, scheme=scheme, order=order, results=results)

    def lengths_of(self, q, k) -> tuple[int, int]:
        """Of all queries and keys."""
        if self.lengths == "even":
            return q.shape[2] * self.ranks.count, k.shape[2] * self.ranks.count
        if self.lengths is not None:
            nested = len(self.lengths) == 2 and not isinstance(self.lengths[0], int)
            of_q, of_kv = self.lengths if nested else (self.lengths, self.lengths)
            return sum(of_q), sum(of_kv)
        every = self.ranks.agree({"q": q.shape[2], "kv": k.shape[2]}, q.device)
        return sum(one["q"] for one in every), sum(one["kv"] for one in every)

    def call(self, op, results: tuple[str, ...], q, k, v, given: dict):
        return self.wrap(op, results)(q, k, v, q_start=0, **given, lengths=self.lengths)
