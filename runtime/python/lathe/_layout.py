"""Where heads and tokens stand in the tensors of a call: [b, h, s, d] as the library has them, or as a caller has."""

from __future__ import annotations

import re
from typing import Any, Sequence

from . import _library as c
from ._signature import Argument

LAYOUTS = ("bhsd", "bshd", "thd")
_HEADS = ("h", "h_kv", "h_k")
_TOKENS = ("q", "kv", "t")
_POOLS = ("k", "v", "k2", "dk", "dv", "dk2")


def check_layout(layout: str, op_name: str, kind: str) -> None:
    if layout not in LAYOUTS:
        raise c.ArgumentError(f"layout: expected one of {', '.join(LAYOUTS)}, given {layout!r}")
    if layout != "bhsd" and kind not in ("attention", "linear_attention"):
        raise c.ArgumentError(f"layout: {op_name} is {kind}, which has no tensors of heads and tokens to turn: 'bhsd' "
                              "alone, each tensor as its spec declares it")  # fmt: skip


def order(layout: str, op, argument: Argument) -> tuple[int, ...]:
    """The dims of an argument as the caller has them, by their number in the library's order.

    "bshd": in q, k, v, o and in inputs of the spec, as g [b, h, t], where a dim of heads stands before the only dim of
    tokens, the two change places. A bias [b, h, q, kv] and what has no tokens stay as declared, and so do finals: lse
    is [b, h, q], as in other libraries. "thd": the same, without the batch, which is 1 where sequences are packed.
    """
    dims = list(range(len(argument.dims)))
    names = [d.name if (d.times == 1 or d.name in _TOKENS + _HEADS) and not d.plus else "" for d in argument.dims]
    tokens = [i for i in dims if names[i] in _TOKENS]
    if layout == "bhsd" or len(tokens) != 1 or not _may_turn(op, argument):
        return tuple(dims)
    at = tokens[0]
    if at == 0 or names[at - 1] not in _HEADS:
        return tuple(dims)
    dims[at - 1], dims[at] = at, at - 1
    return tuple(dims[1:] if layout == "thd" and names[0] == "b" else dims)


def _may_turn(op, argument: Argument) -> bool:
    """Gradients lie as what they are of."""
    of = op.forward.by_name.get(argument.name[1:]) if argument.name[:1] == "d" else None
    own = op.forward.by_name.get(argument.name) or of or argument
    return own.is_input or (own.shares_dtype and len(own.dims) == 4)


def to_library(
    layout: str, op, argument: Argument, shape: Sequence[Any], strides: Sequence[Any]
) -> tuple[tuple, tuple]:
    """Shape and strides in the library's order of a tensor that the caller gave."""
    places = order(layout, op, argument)
    if layout == "bhsd" or places == tuple(range(len(argument.dims))):
        return tuple(shape), tuple(strides)
    if argument.name in _POOLS and len(shape) == len(argument.dims) > len(places):
        return tuple(shape), tuple(strides)  # pools of pages, beside packed queries
    if len(shape) != len(places):
        raise c.ArgumentError(
            f"argument '{argument.name}': expected shape {shape_text(layout, op, argument)} in layout '{layout}', "
            f"given {list(shape)}"
        )
    # A batch that was left out is one of 1; its stride is never used.
    sizes, steps = [1] * len(argument.dims), [0] * len(argument.dims)
    for place, size, step in zip(places, shape, strides):
        sizes[place], steps[place] = size, step
    if len(places) < len(argument.dims):
        steps[0] = shape[0] * strides[0] if shape else 1
    return tuple(sizes), tuple(steps)


def to_user(layout: str, op, argument: Argument, shape: tuple, paged: bool = False) -> tuple:
    """The shape of a result as the caller has it. paged: keys lie in pages, and beside packed queries so do their
    gradients, in pools as the library has them."""
    if len(shape) != len(argument.dims) or (paged and layout == "thd" and argument.name in _POOLS):
        return shape
    return tuple(shape[place] for place in order(layout, op, argument))


def shape_text(layout: str, op, argument: Argument) -> str:
    return "[" + ", ".join(str(argument.dims[place]) for place in order(layout, op, argument)) + "]"


_OF_ARGUMENT = re.compile(r"argument '(\w+)'")
_SHAPE = re.compile(r"\[([^\[\]]*,[^\[\]]*)\]")


def retold(layout: str, op, by_name, error: c.LatheError) -> c.LatheError:
    """What the library refuses, with shapes as the caller has them where it tells of a tensor that is turned."""
    found = _OF_ARGUMENT.match(str(error))
    argument = found and by_name.get(found.group(1))
    if not argument or order(layout, op, argument) == tuple(range(len(argument.dims))):
        return error

    def turned(shape) -> str:
        items = tuple(t.strip() for t in shape.group(1).split(","))
        return "[" + ", ".join(to_user(layout, op, argument, items)) + "]"

    text = _SHAPE.sub(turned, str(error))
    return type(error)(f"{text} (layout '{layout}': {argument.name} {shape_text(layout, op, argument)})")


def need_starts(layout: str, by_name, given) -> None:
    """Packed tokens are told apart by where their sequences begin."""
    name = "cu_q" if "cu_q" in by_name else "cu"
    if layout == "thd" and given.get(name) is None:
        raise c.ArgumentError(
            f"argument '{name}': missing; layout 'thd' is of packed sequences, and {name} [seqs+1] i32 says where each "
            "begins: [0, tokens] for a single one"
        )
