"""Linear attention to tokens that are sharded along a mesh axis: each device begins with the state behind the tokens
before its own.

A state behind tokens is a linear function of the one before them and a sum of their own. Each device finds both by
calls of their own, with no state, and without values; all are gathered once, and each puts together the state that it
begins with. Gradients of states go the other way in the same steps.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .. import _layout, _library as c
from .._nature import counts_tokens, nature
from ._axes import Axis
from ._function import Function


class State(NamedTuple):
    """S [seqs, h, d, d_v], and z [seqs, h, d] where the spec divides by it."""

    s: jax.Array
    z: jax.Array | None = None

    def named(self, state: str, norm: str) -> dict:
        return {state: self.s} if self.z is None else {state: self.s, norm: self.z}

    def plus(self, other: State) -> State:
        return jax.tree.map(jnp.add, self, other)


def _like(kind: State, state: State) -> State:
    """States may come in 16 bits; between devices they are as wide as in kernels."""
    return jax.tree.map(lambda k, x: x.astype(k.dtype), kind, state)


def _total(states: list[State]) -> State:
    total = states[0]
    for state in states[1:]:
        total = total.plus(state)
    return total


class StatesFunction(Function):
    """Every device has tokens of its own, and gets their o: see `wrap`."""

    def __init__(self, op, layout: str, results: tuple[str, ...], axis):
        if op.kind != "linear_attention":
            raise c.UnsupportedError(f"states: {op.name} is {op.kind}, and states are of linear attention; keys= "
                                     "shards the keys of attention")  # fmt: skip
        self.nature = nature(op)
        refused = self.nature.refused or counts_tokens(op)
        if refused:
            raise c.UnsupportedError(f"states: {op.name} is not cut by its tokens, as {refused}; jax.lax.all_to_all "
                                     "shards its heads instead")  # fmt: skip
        super().__init__(op, layout, results)
        for name in self.wanted:
            if name not in ("o", "state_out", "norm_out"):
                raise c.UnsupportedError(f"states: result '{name}': of tokens that are sharded there are o, state_out "
                                         "and norm_out")  # fmt: skip
        self.axis = Axis("states", axis)
        self.axes = self.axis.all

    def _bind(self, args, named) -> dict[str, Any]:
        given = super()._bind(args, named)
        devices = self.axis.size()
        for name in ("state_index", "state_out_index", "states_index"):
            if name in given:
                raise c.UnsupportedError(f"states: argument '{name}': a pool of states is of one device; give state")
        d, d_v = given["q"].shape[-1], given["v"].shape[-1]
        columns = self._over_columns(given)
        if self.nature.mixes and d != d_v and devices > 2 and columns:
            raise c.UnsupportedError(
                f"states: argument '{columns[0]}' is over d_v, which is not d, and stands in the way of finding what "
                "becomes of a state; jax.lax.all_to_all shards heads instead"
            )
        if self.nature.mixes and d != d_v and devices > 2 and self.nature.reads_width:
            raise c.UnsupportedError(
                f"states: {self.op.name} reads at.d_v, which is not d, and what becomes of a state is found with d "
                "value channels; give that number as a scalar input"
            )
        return given

    def _over_columns(self, given: dict) -> list[str]:
        """Inputs that have a place for each value channel."""
        by_name = self.op.forward.by_name
        return [n for n in given if by_name[n].is_input and any(d.name == "d_v" for d in by_name[n].dims)]

    # ---- states ------------------------------------------------------------------------------------------------

    def _state(self, have: dict, value: float) -> State:
        v = have["v"]
        places = _layout.order(self.layout, self.op, self.op.forward.by_name["v"])
        seqs = have["cu"].shape[0] - 1 if "cu" in have else v.shape[places.index(0)]
        shape = (seqs, v.shape[places.index(1)], have["q"].shape[-1], v.shape[-1])
        made = jnp.full(shape, value, jnp.float64 if v.dtype == jnp.float64 else jnp.float32)
        return State(made, made[..., 0] if self.nature.has_norm else None)

    def _place(self):
        """Where this device stands on the way of states, and the order of devices on it."""
        devices = self.axis.size()
        turned = self.nature.reads_future and not self.nature.whole
        return (devices - 1 - self.axis.index(), slice(None, None, -1)) if turned else (self.axis.index(), slice(None))

    def _behind(self, have: dict, numbers: tuple, state: State) -> State:
        names = ("o", "state_out", *(("norm_out",) if self.nature.has_norm else ()))
        return State(*self._pass(c.FORWARD, have | state.named("state", "norm"), numbers, names)[1:])

    def _turn(self, have: dict, numbers: tuple):
        """What becomes of a state: a matrix [seqs, h, d, d], or a factor of each element."""
        v, one = have["v"], self._state(have, 1)
        if not self.nature.mixes:
            alike = not self.nature.by_column and not self.nature.reads_width and not self._over_columns(have)
            if alike:  # one column tells, kernels take 16
                one, v = State(one.s[..., :16], one.z), v[..., :16]
            return self._behind(have | {"v": jnp.zeros_like(v)}, numbers, one).s
        d = one.s.shape[2]
        eye = jnp.broadcast_to(jnp.eye(d, dtype=one.s.dtype), (*one.s.shape[:3], d))
        return self._behind(have | {"v": jnp.zeros((*v.shape[:-1], d), v.dtype)}, numbers, State(eye)).s

    def _through(self, turn, state: State, back: bool = False) -> State:
        if self.nature.mixes:
            form = "shji,shjv->shiv" if back else "shij,shjv->shiv"
            return State(jnp.einsum(form, turn, state.s, precision=jax.lax.Precision.HIGHEST))
        factors = turn if turn.shape == state.s.shape else turn[..., :1]
        return State(factors * state.s, None if state.z is None else turn[..., 0] * state.z)

    def _gathered(self, tree):
        """What all devices have, in the order of places."""
        order = self._place()[1]
        every = jax.tree.map(lambda x: jax.lax.all_gather(x, self.axis.names)[order], tree)
        return [jax.tree.map(lambda x, at=at: x[at], every) for at in range(self.axis.size())]

    def _mine(self, by_place: list):
        place = self._place()[0]
        return jax.tree.map(lambda *x: jax.lax.dynamic_index_in_dim(jnp.stack(x), place, 0, False), *by_place)

    def _only_at(self, at: int, tree):
        here = self._place()[0] == at
        return jax.tree.map(lambda x: jnp.where(here, x, jnp.zeros_like(x)), tree)

    def _others(self, states: list[State]) -> State:
        """The sum of those of all other places."""
        place = self._place()[0]
        return _total([jax.tree.map(lambda x, at=at: jnp.where(place == at, 0, x), s) for at, s in enumerate(states)])

    # ---- passes ------------------------------------------------------------------------------------------------

    def _forward(self, have: dict, numbers: tuple, results: tuple[str, ...]) -> tuple:
        return self._forward_and_kept(have, numbers, results)[0]

    def _forward_and_kept(self, have: dict, numbers: tuple, results: tuple[str, ...]) -> tuple:
        zero, rest = self._state(have, 0), {n: a for n, a in have.items() if n not in ("state", "norm")}
        last = self.axis.size() - 1
        first = self._only_at(0, _like(zero, State(have["state"], have.get("norm")))) if "state" in have else zero
        mine = self._behind(rest, numbers, first)
        turns = None
        if self.nature.whole:
            begins = self._others(self._gathered(mine)).plus(first)
        else:
            turns = self._gathered(self._turn(rest, numbers)) if last > 1 else None
            begins = self._mine(self._on_the_way(self._gathered(mine), turns, first))
        made = self._pass(c.FORWARD, rest | begins.named("state", "norm"), numbers, results)
        end = 0 if self.nature.whole else last
        alike = lambda r: self.axis.sum_alike(self._only_at(end, r)).astype(have.get("state", r).dtype)
        return tuple(r if n == "o" else alike(r) for n, r in zip(results, made)), (begins, turns)

    def _on_the_way(self, added: list[State], turns, first: State) -> list[State]:
        """The state that each place begins with."""
        states = [first, added[0]]
        for at in range(1, len(added) - 1):
            states.append(self._through(turns[at], states[-1]).plus(added[at]))
        return states[: len(added)]

    def _gradients(self, have: dict, results: dict, seeds: dict, numbers, kept) -> dict:
        begins, turns = kept
        of_state = ("dstate", "dnorm") if self.nature.has_norm else ("dstate",)
        read = self._read_back({n: a for n, a in have.items() if n not in ("state", "norm")}, results, seeds)
        zero = self._state(have, 0)
        seed = _like(zero, State(read.pop("dstate_out", zero.s), read.pop("dnorm_out", zero.z)))
        read |= begins.named("state", "norm")
        last = self.axis.size() - 1
        run = lambda after, names: self._pass(c.BACKWARD, read | after.named("dstate_out", "dnorm_out"), numbers, names)
        if self.nature.whole:
            added = self._gathered(State(*run(zero, of_state)))
            behind = self._others(added).plus(seed)
        else:
            added = self._gathered(State(*run(self._only_at(last, seed), of_state)))
            behind = self._mine(self._on_the_way_back(added, turns, seed))
        order = self._wanted(have)
        made = dict(zip(order, run(behind, order)))
        # What all devices give alike is the first one's share.
        return {n[1:]: self._only_at(0, g) if n in of_state else g for n, g in made.items()}

    def _on_the_way_back(self, added: list[State], turns, seed: State) -> list[State]:
        """The gradient of the state behind each place's tokens."""
        states = [seed, added[-1]]
        for at in range(len(added) - 2, 0, -1):
            states.append(self._through(turns[at], states[-1], back=True).plus(added[at]))
        return states[: len(added)][::-1]

    def _whole_seed(self, result: str, seed):
        return seed if result == "o" else self.axis.whole_seed(seed)
