"""Attention to keys that are sharded along a mesh axis: parts of rows, exchanged and put together."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from .. import _layout, _library as c
from .._numbers import I32_MOST
from ._axes import Axis
from ._function import Function


class KeysFunction(Function):
    """Every device has all queries and its own keys, and gets o of all keys: see `wrap`."""

    def __init__(self, op, layout: str, results: tuple[str, ...], axis, interleave: int = 0):
        if op.kind != "attention":
            raise c.UnsupportedError(f"keys: {op.name} is {op.kind}, and keys are of attention; states= shards the "
                                     "tokens of linear attention")  # fmt: skip
        if not op.joining.arguments:
            op._refuse_parts()
        super().__init__(op, layout, results)
        for name in self.wanted:
            if name not in [r.name for r in op.joining.results]:
                raise c.UnsupportedError(f"keys: result '{name}': of all keys there are o and the finals; a function "
                                         "without keys= has it")  # fmt: skip
        self.axis = Axis("keys", axis)
        self.axes = self.axis.all
        self.interleave = interleave  # keys of a chunk, of which devices have one in turn; 0: none

    def _bind(self, args, named) -> dict[str, Any]:
        given = super()._bind(args, named)
        devices = self.axis.size()
        if self.interleave:
            given_place = next((n for n in ("kv_start", "len_kv", "kv_chunk", "kv_step") if n in given), None)
            if given_place:
                raise c.ArgumentError(f"argument '{given_place}': interleave= says where the keys of a device are; "
                                      "leave it out")  # fmt: skip
        if "kv_start" in given or "len_kv" in given:
            return given
        for name in ("cu_q", "cu_kv", "pages"):
            if name in given:
                raise c.ArgumentError(
                    f"argument 'kv_start': missing; beside '{name}' the shape of k does not say where this device's "
                    "keys of a sequence begin: give kv_start and len_kv, which count for every sequence"
                )
        places = _layout.order(self.layout, self.op, self.op.forward.by_name["k"])
        here = given["k"].shape[places.index(2)]
        if here * devices > I32_MOST:
            raise c.ArgumentError(f"argument 'len_kv': expected at most {I32_MOST} keys on all devices, given "
                                  f"{here * devices}")  # fmt: skip
        if not self.interleave:
            return given | {"kv_start": self.axis.index() * jnp.int32(here), "len_kv": here * devices}
        chunk = self.interleave
        if here % chunk:
            raise c.ArgumentError(f"interleave: expected a number that {here} keys of a device are a multiple of, "
                                  f"given {chunk}")  # fmt: skip
        return given | {"kv_start": self.axis.index() * jnp.int32(chunk), "kv_chunk": chunk,
                        "kv_step": chunk * devices, "len_kv": here * devices}  # fmt: skip

    # ---- passes ------------------------------------------------------------------------------------------------

    def _forward(self, have: dict, numbers: tuple, results: tuple[str, ...]) -> tuple:
        parts = self._pass(c.FORWARD, have, numbers, ("part_o", "part_rows"))
        heads = parts[0].shape[1]
        devices = self.axis.size()
        if heads % devices:
            stacked = [self.axis.gather(p) for p in parts]
            return tuple(map(self.axis.same, self._join(stacked, have, numbers, results, {})))
        # Each device puts parts of some of the heads together, which sends less.
        places = {"h_start": have.get("h_start", dict(numbers).get("h_start", 0)),
                  "n_h": have.get("n_h", dict(numbers).get("n_h", heads))}  # fmt: skip
        places["h_start"] += self.axis.index() * jnp.int32(heads // devices)
        joined = self._join([self.axis.turn(p, 1) for p in parts], have, numbers, results, places)
        return tuple(self.axis.gather(r, self._heads_of(n), tiled=True) for n, r in zip(results, joined))

    def _heads_of(self, result: str) -> int:
        return _layout.order(self.layout, self.op, self.op.forward.by_name[result]).index(1)

    def _join(self, stacked, have: dict, numbers: tuple, results: tuple[str, ...], places: dict) -> tuple:
        known = self.op.joining.by_name
        read = {"part_o": stacked[0], "part_rows": stacked[1], **self._q_start(stacked[0], have, numbers)}
        read |= {n: a for n, a in have.items() if n in known and n not in places}
        read |= {n: jnp.asarray(v, jnp.int32) for n, v in places.items() if not isinstance(v, int)}
        fixed = tuple(s for s in numbers if s[0] not in places)
        fixed += tuple((n, v) for n, v in places.items() if isinstance(v, int))
        return self._pass(c.COMBINE, read, fixed, results, (("o", have["q"].dtype),))

    def _q_start(self, part_o, have: dict, numbers: tuple) -> dict:
        """Where o's mod reads positions, it has to be told where the queries stand, by default at the end."""
        fixed = dict(numbers)
        if "q_start" not in self.op.joining.by_name or "q_start" in have or "q_start" in fixed:
            return {}
        return {"q_start": jnp.asarray(have.get("len_kv", fixed.get("len_kv")) - part_o.shape[3], jnp.int32)}

    def _whole_seed(self, result: str, seed):
        return self.axis.whole_seed(seed)
