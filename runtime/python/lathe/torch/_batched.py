"""Calls under vmap: one call after the other, for each slice of a batch.

torch.func has its own rule for it (`each_slice`). `torch.autograd.grad(..., is_grads_batched=True)`, and with it
`functional.jacobian(vectorize=True)`, run a backward pass on tensors of an older kind, which have no storage.
"""

from __future__ import annotations

from types import SimpleNamespace

import torch

from .. import _library as c


def each_slice(function, info, in_dims, *args):
    """The rule of vmap: one call after the other. What a spec reads of its batch is then that of each call."""
    if info.batch_size == 0:
        raise c.ArgumentError("vmap: expected at least one slice, given none")
    sliced = [a if d is None else a.unbind(d) for a, d in zip(args, in_dims)]
    made = [function(*(s if d is None else s[i] for s, d in zip(sliced, in_dims))) for i in range(info.batch_size)]
    if isinstance(made[0], torch.Tensor):
        return torch.stack(made), 0
    return tuple(map(torch.stack, zip(*made))), (0,) * len(made[0])


def is_batched(tensor) -> bool:
    """Of is_grads_batched, whose tensors are of no Python type of their own."""
    return torch._C._functorch.is_legacy_batchedtensor(tensor)


def _level() -> int:
    level = torch._C._vmapmode_increment_nesting()
    torch._C._vmapmode_decrement_nesting()
    return level - 1


def each_gradient(function, tensors) -> list:
    """What `function` gives of each slice of tensors, some of which are batched, as batched tensors."""
    level = _level()
    dims = [0 if is_batched(t) else None for t in tensors]
    plain = [t if d is None else torch._remove_batch_dim(t, level, 1, 0) for t, d in zip(tensors, dims)]
    size = next(len(t) for t, d in zip(plain, dims) if d is not None)
    made, _ = each_slice(lambda *t: tuple(function(t)), SimpleNamespace(batch_size=size), dims, *plain)
    return [torch._add_batch_dim(t, 0, level) for t in made]
