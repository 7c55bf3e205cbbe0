"""One call of all ranks: what this one has given, and what all of it is together."""

from __future__ import annotations

from typing import Any

import torch

from ... import _library as c
from ..._op import Op
from ._ranks import Ranks
from ._shards import Shards

OPERANDS = ("q", "k", "v", "q2", "k2")
PLACES = ("kv_start", "len_kv", "kv_chunk", "kv_step", "h_start", "n_h")  # which a scheme gives
PACKED = ("cu_q", "cu_kv", "cu")
NOT_CUT = ("used_kv", "pages", "state_index", "state_out_index", "states_index", "o", "part_o", "part_rows",
           "mask_kept")  # fmt: skip


class Problem:
    """tensors: operands [b, heads, tokens, d], and inputs; numbers: scalars. Sizes are those of all ranks."""

    def __init__(self, op: Op, ranks: Ranks, tensors: dict, numbers: dict, q_shards: Shards | None, kv_shards: Shards):
        self.op, self.ranks = op, ranks
        self.tensors, self.numbers = tensors, numbers
        self.q_shards, self.kv_shards = q_shards, kv_shards  # q_shards None: every rank has all queries
        self.h_first, self.n_h = 0, self.heads  # of a mesh that shares out heads, too

    @property
    def q(self):
        return self.tensors["q"]

    @property
    def heads(self) -> int:
        """Of queries; linear attention: of v."""
        return self.tensors["q" if self.op.kind == "attention" else "v"].shape[1]

    @property
    def key_heads(self) -> int:
        return self.tensors["k" if "k" in self.tensors else "q"].shape[1]

    @property
    def operands(self) -> tuple[str, ...]:
        return tuple(n for n in OPERANDS if n in self.tensors)

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(n for n in ("k", "v", "k2") if n in self.tensors)

    @property
    def inputs(self) -> dict:
        return {n: t for n, t in self.tensors.items() if n not in OPERANDS}

    @property
    def queries(self) -> int:
        return self.q.shape[2] if self.q_shards is None else self.q_shards.total

    @property
    def q_start(self) -> int:
        """Of query 0 of all."""
        given = self.numbers.get("q_start")
        return self.kv_shards.total - self.queries if given is None else int(given)

    @property
    def others(self) -> dict:
        """Scalars that go to every call as they are."""
        return {n: x for n, x in self.numbers.items() if n != "q_start"}

    def places(self, first: int = 0, of: int | None = None) -> dict:
        """Where the heads of a call begin among all, if it has but some of them."""
        some = self.n_h != (self.heads if of is None else of)
        return {"h_start": self.h_first + first, "n_h": self.n_h} if some else {}

    @property
    def packed(self) -> bool:
        return any(n in self.tensors for n in PACKED)

    @property
    def trains(self) -> bool:
        return torch.is_grad_enabled() and any(t.requires_grad for t in self.tensors.values())

    def rows_of(self, name: str, start: int, length: int) -> Any:
        """Of an input over "q", the rows of these queries; others as they are."""
        return self.rows(name, self.tensors[name], start, length)

    def rows(self, name: str, x, start: int, length: int) -> Any:
        """The same of a tensor that is shaped as that input."""
        for dim, size in enumerate(self.op.forward.by_name[name].dims):
            if size.name == "q" and size.times == 1 and not size.plus:
                x = x.narrow(dim, start, length)
        return x


def check_names(op: Op, named: dict) -> None:
    for name in named:
        if name in PLACES:
            raise c.ArgumentError(f"argument '{name}': the scheme says which keys and heads a call has; leave it out")
        if name in NOT_CUT:
            raise c.ArgumentError(f"argument '{name}': not taken by a call over several ranks, whose tokens are cut; "
                                  "call lathe.torch.wrap with kv_start, len_kv, h_start and n_h")  # fmt: skip
