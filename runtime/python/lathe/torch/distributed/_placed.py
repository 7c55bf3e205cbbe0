"""DTensors: their placements say which ranks have which tokens and heads.

Along a dim of the mesh q, k and v are sharded by the batch (each rank has its own, and that is all), by heads (each
has its own, with its place among all: h_start), or by tokens (a scheme); where a cache is sharded by tokens and q is
not, by keys. Results lie as q does.
"""

from __future__ import annotations

import sys

import torch

from ... import _library as c
from ._problem import OPERANDS
from ._ranks import Ranks
from ._shards import even


def of_tensors(function, args, named):
    """None where no argument is a DTensor."""
    module = sys.modules.get("torch.distributed.tensor")
    if module is None or not any(isinstance(x, module.DTensor) for x in (*args, *named.values())):
        return None
    return Placed(function, function._bind(args, named, turn=False))


class Placed:
    """A call of DTensors, as calls of their local tensors."""

    def __init__(self, function, given: dict):
        from torch.distributed.tensor import DTensor

        self.function, self.op, self.given, self.kind = function, function.op, given, DTensor
        for name in OPERANDS:
            if name in given and not isinstance(given[name], DTensor):
                raise c.ArgumentError(f"argument '{name}': expected a DTensor, as other arguments are")
        self.q = given["q"]
        self.v = given.get("v", given.get("k"))
        self.mesh = self.q.device_mesh
        turned = function.layout == "bshd"
        self.tokens, self.heads = (1, 2) if turned else (2, 1)
        self.along = [self._what(i) for i in range(self.mesh.ndim)]
        if self.along.count("tokens") + self.along.count("keys") > 1:
            raise c.UnsupportedError(f"{self.op.name}: tokens are sharded over two dims of the mesh; flatten them")

    def _what(self, i: int) -> str:
        """What a dim of the mesh shares out."""
        of_q, *others = [self._dim_of(n, i) for n in OPERANDS if n in self.given and n != "q2"]
        if of_q is None and others and all(dim == self.tokens for dim in others):
            return "keys"
        if any(dim != of_q for dim in others):
            raise c.ArgumentError(f"{self.op.name}: q, k and v are placed differently along dim {i} of the mesh: "
                                  f"{[self.given[n].placements for n in OPERANDS if n in self.given]}")  # fmt: skip
        known = {None: "nothing", 0: "batch", self.heads: "heads", self.tokens: "tokens"}
        if of_q not in known:
            raise c.ArgumentError(f"{self.op.name}: q is sharded by the elements of its rows, which belong together; "
                                  "shard the batch, heads or tokens")  # fmt: skip
        return known[of_q]

    def _dim_of(self, name: str, i: int) -> int | None:
        placement = self.given[name].placements[i]
        if self.given[name].device_mesh != self.mesh or placement.is_partial():
            raise c.ArgumentError(f"argument '{name}': expected a DTensor of the mesh of q without Partial, given "
                                  f"{placement}")  # fmt: skip
        return placement.dim if placement.is_shard() else None

    # ---- the call -----------------------------------------------------------------------------------------------

    def call(self):
        function = self.function
        own, ranks, lengths = self._own(), self._ranks(), self._lengths()
        given = {n: function._turn(self.op.forward.by_name[n], x) for n, x in own.items()}
        if ranks is None:
            made = function.alone(given, self._heads())
        else:
            made = function.run(given, lengths, ranks, self._heads(), whole_q="keys" in self.along)
        made = function.answer(made)
        return self._placed(made) if isinstance(made, torch.Tensor) else tuple(self._placed(t) for t in made)

    def explain(self) -> str:
        ranks = self._ranks()
        if ranks is None:
            return f"{self.op.name}: each rank has its own {' and '.join(sorted(set(self.along)))}: nothing is sent"
        function = self.function
        given = {n: function._turn(self.op.forward.by_name[n], x) for n, x in self._own().items()}
        return function.told(function._problem(given, self._lengths(), ranks, "keys" in self.along))

    def _own(self) -> dict:
        from torch.distributed.tensor import Partial

        own = {}
        for name, x in self.given.items():
            if not isinstance(x, self.kind):
                own[name] = x
            elif name in OPERANDS:
                own[name] = x.to_local(grad_placements=x.placements)
            else:
                self._check_input(name, x)
                shares = [Partial() if p.is_replicate() else p for p in x.placements]
                own[name] = x.to_local(grad_placements=shares)
        return own

    def _check_input(self, name: str, x) -> None:
        """Inputs are whole, but for their batch; those of linear attention over tokens are cut as q is."""
        dims = self.op.forward.by_name[name].dims
        for along, placement in zip(self.along, x.placements):
            of = dims[placement.dim].name if placement.is_shard() else ""
            fits = {"batch": of in ("", "b"), "tokens": of in ("", "t")}.get(along, of == "")
            if not fits:
                raise c.ArgumentError(f"argument '{name}': expected all of it along dim {of}, where q is sharded by "
                                      f"{along}; .redistribute() it, or lathe.torch.distributed.gather")  # fmt: skip

    def _ranks(self) -> Ranks | None:
        for i, along in enumerate(self.along):
            if along in ("tokens", "keys") and self.mesh.size(i) > 1:
                return Ranks(self.mesh.get_group(i))
        return None

    def _lengths(self):
        i = next((i for i, along in enumerate(self.along) if along in ("tokens", "keys")), None)
        if i is None:
            return None
        ranks = self.mesh.size(i)
        q = self.q.shape[self.tokens]
        kv = self.given.get("k", self.v).shape[self.tokens]
        return ((q,) * ranks if self.along[i] == "keys" else even(q, ranks)), even(kv, ranks)

    def _heads(self) -> tuple[int, int] | None:
        """The first query head of this rank among all, and how many there are."""
        first, n = 0, self.q.shape[self.heads]
        each = n
        for i, along in enumerate(self.along):
            if along == "heads":
                ranks = self.mesh.size(i)
                if each % ranks or self.v.shape[self.heads] % ranks:
                    raise c.UnsupportedError(f"{self.op.name}: heads are not shared out evenly to {ranks} ranks")
                each //= ranks
                first += each * self.mesh.get_local_rank(i)
        if each == n:
            return None
        if self.op.kind != "attention":
            raise c.UnsupportedError(f"{self.op.name}: linear attention takes no place among heads; give to_local()")
        return first, n

    def _placed(self, made):
        """Lies as q: dims of batch, heads and tokens are the same in all results but states."""
        shape = list(self.q.shape)
        if made.dim() == 4:
            shape[3] = made.shape[3]
        shape = shape[: made.dim()]
        if made.dim() == 3 and self.function.layout == "bshd":
            shape = [self.q.shape[0], self.q.shape[2], self.q.shape[1]]
        stride = torch.empty(shape, device="meta").stride()
        placements = self._placements_of(made)
        return self.kind.from_local(made.contiguous(), self.mesh, placements, run_check=False, shape=torch.Size(shape),
                                    stride=stride)  # fmt: skip

    def _placements_of(self, made):
        """Finals are [b, h, q] in every layout."""
        from torch.distributed.tensor import Shard

        heads, tokens = (1, 2) if made.dim() == 3 else (self.heads, self.tokens)
        dim = {"batch": 0, "heads": heads, "tokens": tokens}
        return [Shard(dim[a]) if a in dim else p for a, p in zip(self.along, self.q.placements)]
