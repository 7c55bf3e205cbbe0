"""Specs in JAX: functions with gradients, under jit, vmap and shard_map.

    import lathe, lathe.jax
    attend = lathe.jax.wrap("causal")                # or an Op of lathe.load, lathe.compile
    o = jax.jit(attend)(q, k, v)                     # jax.grad through it; q, k, v [b, h, s, d]
"""

from __future__ import annotations

from typing import Sequence, Union

from .. import _library as c
from .._op import Op, as_op
from ._function import Function
from ._keys import KeysFunction
from ._states import StatesFunction

__all__ = ["Function", "wrap"]


Axes = Union[str, Sequence[str], None]


def wrap(
    op: Op | str, *, layout: str = "bhsd", results: tuple[str, ...] = (), keys: Axes = None, states: Axes = None,
    interleave: int = 0,
) -> Function:  # fmt: skip
    """A spec as a function of JAX arrays, with gradients: `attend = lathe.jax.wrap("causal"); attend(q, k, v)`.
    op: an Op, what lathe.load takes, or the text of a spec.

    Required arrays go by position, everything by name. layout: where heads and tokens stand, "bhsd", "bshd", or "thd"
    for packed sequences (with cu_q=, or cu= in linear attention). It is that of q, k, v, o and of inputs with a dim of
    heads before their only one of tokens, as g [b, h, t]; others lie as declared. Nothing is copied for it.
    results: what a call returns, by name.

    Inside of jax.shard_map a call is one of the device's own arrays; kv_start= and len_kv=, h_start= and n_h=, q_start=
    say which of all keys, heads and queries those are. keys: a mesh axis, or several, along which k and v are sharded
    in the order of its devices; each device has all queries, and gets o and finals of all keys. interleave: keys of a
    chunk, of which the first device has the first, the second the next, and so on in turn; 0: all keys of a device
    follow each other.
    states: the same of the tokens of linear attention, each device having its own q, k, v and inputs by token; a state
    that is given is the one before the first token of all, and state_out that behind the last, the same everywhere.

    A scalar that is a number is a constant of the compiled program; one that is a JAX array of one element may change
    from call to call, as a seed, and is read when the kernel is launched, for which a GPU waits. To differentiate what
    the spec declares without `grad = true` is refused, and so are forward-mode and second derivatives.
    """
    op = as_op(op)
    results = (results,) if isinstance(results, str) else tuple(results)
    key = f"jax {layout} {','.join(results)} {keys!r} {states!r} {interleave!r}"
    found = op._extensions.get(key)
    if found is None:
        found = op._extensions[key] = _make(op, layout, results, keys, states, interleave)
    return found


def _make(op: Op, layout: str, results: tuple[str, ...], keys: Axes, states: Axes, interleave: int) -> Function:
    if type(interleave) is not int or interleave < 0 or (interleave and keys is None):
        raise c.ArgumentError(f"interleave: expected the keys of a chunk, 1 or more, beside keys=, or 0, given "
                              f"{interleave!r}")  # fmt: skip
    if keys is not None and states is not None:
        raise c.ArgumentError("keys, states: expected one of them; keys is of attention, states of linear attention")
    if states is not None:
        return StatesFunction(op, layout, results, states)
    return Function(op, layout, results) if keys is None else KeysFunction(op, layout, results, keys, interleave)
