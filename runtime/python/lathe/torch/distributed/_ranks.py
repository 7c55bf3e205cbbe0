"""Ranks of a process group, and what they send each other: bytes of torch.distributed, whatever the dtype.

Everything here is called by all ranks in the same order. What a scheme needs is two things, a piece for each rank
(`exchange`) and a piece for all (`gather`); sums over ranks are added here, in the order of the ranks, in f32, so that
they have the same bits from run to run.
"""

from __future__ import annotations

from math import prod

import torch
import torch.distributed as dist

from ... import _library as c


class Ranks:
    """A ProcessGroup, or a DeviceMesh of one dim; None: all ranks."""

    def __init__(self, group=None):
        if not dist.is_available() or not dist.is_initialized():
            raise c.ArgumentError("lathe.torch.distributed: torch.distributed has no ranks yet; call "
                                  "torch.distributed.init_process_group, or give a DeviceMesh")  # fmt: skip
        if group is not None and hasattr(group, "get_group"):
            if group.ndim != 1:
                raise c.ArgumentError("group: expected a DeviceMesh of one dim, over which tokens are shared out, "
                                      f"given one of {group.ndim}; mesh[NAME] has one")  # fmt: skip
            group = group.get_group()
        self.group = group
        self.count = dist.get_world_size(group)
        self.me = dist.get_rank(group)
        if self.me < 0:
            raise c.ArgumentError("group: this process is not in the group")

    def exchange(self, send: list, shapes: list, dtype: torch.dtype, device) -> list:
        """send[r]: tensors for rank r; shapes[r]: those of the tensors that come from it, which are given back."""
        out = packed([t for pieces in send for t in pieces], dtype, device)
        out_sizes = [sum(t.numel() for t in pieces) for pieces in send]
        in_sizes = [sum(prod(s) for s in of_rank) for of_rank in shapes]
        into = out.new_empty(sum(in_sizes))
        size = dtype.itemsize
        dist.all_to_all_single(into.view(torch.uint8), out.view(torch.uint8), [n * size for n in in_sizes],
                               [n * size for n in out_sizes], group=self.group)  # fmt: skip
        return [unpacked(part, of_rank) for part, of_rank in zip(into.split(in_sizes), shapes)]

    def gather(self, mine: list, shapes: list, dtype: torch.dtype, device) -> list:
        """The tensors of every rank; shapes[r]: those of rank r. The longest says how many bytes travel."""
        sizes = [sum(prod(s) for s in of_rank) for of_rank in shapes]
        most = max(sizes)
        out = packed(mine, dtype, device, most)
        into = out.new_empty(self.count * most)
        if most:
            dist.all_gather_into_tensor(into.view(torch.uint8), out.view(torch.uint8), group=self.group)
        parts = [into[r * most : r * most + sizes[r]] for r in range(self.count)]
        return [unpacked(part, of_rank) for part, of_rank in zip(parts, shapes)]

    def pass_on(self, send, size: int) -> "Coming":
        """A flat tensor to the next rank, and `size` elements from the one before, beside what is computed."""
        come = send.new_empty(size)
        ops = [self._message(dist.isend, send, 1)] if send.numel() else []
        ops += [self._message(dist.irecv, come, -1)] if size else []
        return Coming(send, come, dist.batch_isend_irecv(ops) if ops else [])

    def _message(self, way, flat, steps: int):
        peer = dist.get_global_rank(self.group or dist.group.WORLD, (self.me + steps) % self.count)
        return dist.P2POp(way, flat.view(torch.uint8), peer, self.group)

    def sums(self, send: list, dtype: torch.dtype, device) -> list:
        """send[r]: shares of what rank r has; the sums of what has come, each rank's share once."""
        shapes = [[t.shape for t in send[self.me]]] * self.count
        return [added(list(shares)) for shares in zip(*self.exchange(send, shapes, dtype, device))]

    def agree(self, mine: dict, device, error: Exception | None = None) -> list[dict]:
        """What every rank says, as integers by name, or the error of a rank that cannot go on."""
        numbers = torch.tensor([int(error is None), *mine.values()], dtype=torch.int64, device=device)
        every = numbers.new_empty(self.count * len(numbers))
        dist.all_gather_into_tensor(every, numbers, group=self.group)
        rows = every.view(self.count, -1).tolist()
        if error is not None:
            raise error
        failed = [r for r, row in enumerate(rows) if not row[0]]
        if failed:
            raise c.LatheError(f"rank {failed[0]} has given up before anything was sent; its own error says why")
        return [dict(zip(mine, row[1:])) for row in rows]


class Coming:
    """What is under way; what is sent stays as it is until it has come."""

    def __init__(self, send, come, works):
        self.send, self.come, self.works = send, come, works

    def wait(self):
        for work in self.works:
            work.wait()
        self.send = None
        return self.come


def packed(tensors, dtype, device, size: int | None = None):
    """One behind the other, with room up to `size` elements."""
    flat = [t.reshape(-1) for t in tensors if t.numel()]
    missing = 0 if size is None else size - sum(t.numel() for t in flat)
    if missing:
        flat.append(torch.zeros(missing, dtype=dtype, device=device))
    return torch.cat(flat) if flat else torch.empty(0, dtype=dtype, device=device)


def unpacked(flat, shapes) -> list:
    sizes = [prod(s) for s in shapes]
    return [part.view(tuple(shape)) for part, shape in zip(flat[: sum(sizes)].split(sizes), shapes)]


def added(shares: list):
    """In the order that they have, in f32 (f64 beside f64)."""
    dtype = shares[0].dtype
    wide = torch.promote_types(dtype, torch.float32)
    total = shares[0].to(wide)
    for share in shares[1:]:
        total = total + share
    return total.to(dtype)
