"""BlockMask: its function, or its lists where they say more than the function."""

from __future__ import annotations

import weakref

import torch
from torch.nn.attention import flex_attention as flex

from ._watch import watch

_ROWS = 1 << 24  # pairs that are looked at in one go
_known: "weakref.WeakKeyDictionary" = weakref.WeakKeyDictionary()


class Blocks:
    """What a call takes of a BlockMask: a mask_mod, and tables [b, h, query block, key block] of 1 and 0, by their
    names: of live blocks, and of those in which the mask_mod is not asked."""

    __slots__ = ("mask_mod", "tables", "form")

    def __init__(self, mask_mod, size=(), **tables):
        self.mask_mod = mask_mod
        self.tables = {name: t.int() for name, t in tables.items() if t is not None}
        self.form = (*size, *self.tables) if self.tables else None


def mod_of(block_mask):
    """The function that the user gave."""
    mod = block_mask.mask_mod
    while type(mod).__name__ == "_MaskModWrapper":
        mod = mod.fn
    return None if mod is flex.noop_mask else mod


def blocks_of(block_mask) -> Blocks:
    """Where the lists are those of the function, the formula alone decides. That is looked at again where lists, or
    what the function reads, have changed: torch would go on with the lists."""
    lists = [t for t in (block_mask.kv_num_blocks, block_mask.kv_indices, block_mask.full_kv_num_blocks,
                         block_mask.full_kv_indices) if t is not None]  # fmt: skip
    lists.append(block_mask.mask_mod)
    seen = watch(None, mod_of(block_mask))
    every = (*lists, *seen.tensors)
    state = (*((id(t), getattr(t, "_version", 0)) for t in every), *seen.key)
    found = _known.get(block_mask)
    if found is not None and found[0] == state:
        return found[1]
    made = _blocks(block_mask)
    _known[block_mask] = (state, made, (every, seen.held))
    return made


def heads_of(block_mask) -> tuple[int, int]:
    """Of its lists: 1 where they are the same for all."""
    return ((1, 1) + tuple(block_mask.kv_num_blocks.shape[:-1]))[-2:]


def _blocks(block_mask) -> Blocks:
    mod = mod_of(block_mask)
    if _is_everything(block_mask, mod):
        return Blocks(None)
    size, lengths = block_mask.BLOCK_SIZE, block_mask.seq_lengths
    partial = table_of_blocks(block_mask.kv_num_blocks, block_mask.kv_indices, size, lengths)
    full = torch.zeros_like(partial)
    if block_mask.full_kv_num_blocks is not None:
        full = table_of_blocks(block_mask.full_kv_num_blocks, block_mask.full_kv_indices, size, lengths)
    if mod is None:
        live = partial | full
        return Blocks(None) if bool(live.all()) else Blocks(None, block_mask.BLOCK_SIZE, live_blocks=live)
    all_listed, all_whole = compare(mod, size, lengths, partial, full)
    if all_listed and all_whole:
        return Blocks(mod)
    whole = None if all_whole else full
    return Blocks(mod, block_mask.BLOCK_SIZE, live_blocks=partial | full, whole_blocks=whole)


def table_of_blocks(counts, indices, size, lengths) -> torch.Tensor:
    """Which blocks a list names: bool [b, h, query block, key block], for all blocks of the lengths."""
    rows, columns = (-(-n // one) for n, one in zip(lengths, size))
    b, h = ((1, 1) + tuple(counts.shape[:-1]))[-2:]
    named = torch.arange(indices.shape[-1], device=indices.device) < counts.unsqueeze(-1)
    place = torch.where(named, indices, columns).long().clamp(max=columns).reshape(b, h, -1, indices.shape[-1])
    table = torch.zeros(b, h, max(rows, place.shape[2]), columns + 1, dtype=torch.bool, device=indices.device)
    table[:, :, : place.shape[2]].scatter_(3, place, True)
    return table[:, :, :rows, :columns]


def _is_everything(block_mask, mod) -> bool:
    """torch's own mask of one block, where none was given."""
    return mod is None and block_mask.BLOCK_SIZE[0] >= flex._LARGE_SPARSE_BLOCK_SIZE


def compare(mod, size, lengths, partial, full) -> tuple[bool, bool]:
    """Are all pairs that the function finds live in blocks of the lists? Are all pairs of full blocks live?"""
    all_listed = all_whole = True
    b, h, rows, columns = partial.shape
    (n_q, n_kv), (q_block, kv_block) = lengths, size
    some = max(1, _ROWS // max(1, b * h * n_kv * q_block))  # query blocks at a time
    device = partial.device
    check = flex._vmap_for_bhqkv(mod, prefix=())
    keys = torch.arange(n_kv, device=device)
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

    for first in range(0, rows, some):
        queries = torch.arange(first * q_block, min(n_q, (first + some) * q_block), device=device)
        with TransformGetItemToIndex():
            live = check(torch.arange(b, device=device), torch.arange(h, device=device), queries, keys)
        live = live.expand(b, h, len(queries), n_kv)
        spread = lambda t: t[:, :, queries // q_block][..., keys // kv_block]  # noqa: E731
        listed, whole = spread(partial | full), spread(full)
        all_listed = all_listed and not bool((live & ~listed).any())
        all_whole = all_whole and not bool((whole & ~live).any())
    return all_listed, all_whole
