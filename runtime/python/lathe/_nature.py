"""Does a spec count its tokens, as the library says; and what the state of one of linear attention does on its way
through them, found out on the host device.

A state behind tokens is a linear function of the one before them, and a sum of their own. That function is a factor
for each element, or, where the spec has a delta rule, a matrix for each head.
"""

from __future__ import annotations

from ctypes import c_int
from typing import NamedTuple

import numpy as np

from . import _library as c
from ._op import Op
from .draw import _call

_T, _D = 6, 16


class Nature(NamedTuple):
    refused: str
    reads_past: bool = True
    reads_future: bool = False
    mixes: bool = False  # a matrix takes a state further, else factors do
    by_column: bool = False  # the factors of a row of the state differ
    has_norm: bool = False
    reads_width: bool = False  # another number of value channels takes a state another way

    @property
    def whole(self) -> bool:
        """Every token reads the sum of all."""
        return self.reads_past and self.reads_future


def counts_tokens(op: Op) -> str:
    """Where it counts from the first token of a call, of which a rank has some alone; "": nowhere. An input over tokens
    is cut as they are, so a token's place in it stays right."""
    line = c_int()
    if not c.lib.lathe_spec_counts(op._handle, line):
        return ""
    if not line.value:
        return "what it counts is not known, as memory ran out"
    what = "queries, by at.row or at.len_q" if op.kind == "attention" else "tokens, by at.pos, at.t or at.len_t"
    return f"it counts {what} (line {line.value} of the spec)"


def nature(op: Op) -> Nature:
    found = op._extensions.get("nature of the state")
    if found is None:
        try:
            found = _look(op)
        except c.LatheError as error:
            found = Nature(f"what its state does is not known: {error}")
        op._extensions["nature of the state"] = found
    return found


class _Trial:
    """A small problem; every call of it has the same inputs."""

    def __init__(self, op: Op):
        rng = np.random.default_rng(4)
        self.op = op
        self.given = {n: rng.standard_normal((1, 2, _T, _D)) / 4 for n in ("q", "k", "v") if n in op.forward.by_name}
        self.state = rng.standard_normal((1, 2, _D, _D))
        self.optional = tuple(a.name for a in op.forward.tensors if a.is_input and a.optional)
        self.has_norm = "norm" in op.forward.by_name

    def run(self, **changed):
        """o and the last state."""
        if self.has_norm:
            changed["norm_out"] = True
            if "state" in changed:
                changed["norm"] = np.zeros((1, 2, _D))
        made = _call(self.op, self.given | {"o": True, "state_out": True} | changed, _D, self.optional)
        return made.o, made.state_out

    def v_without(self, token: int):
        v = self.given["v"].copy()
        v[:, :, token] = 0
        return v


def _look(op: Op) -> Nature:
    if any(d.name == "t" and d.times > 1 for a in op.forward.tensors for d in a.dims):
        return Nature("a token makes several updates, which is not tried out yet")
    if any(d.name in ("h", "h_k") and d.times > 1 for a in op.forward.tensors for d in a.dims):
        return Nature("several heads of q read a state (query_heads), which is not tried out yet; repeat k and v")
    trial = _Trial(op)
    o, _ = trial.run()
    reads = lambda row, token: bool((trial.run(v=trial.v_without(token))[0][:, :, row] != o[:, :, row]).any())
    past, future = reads(-1, 1), reads(0, -2)
    one = np.zeros_like(trial.state)
    one[:, :, 1, 1] = 1
    zero = np.zeros_like(trial.given["v"])
    if trial.run(v=zero)[1].any():
        return Nature("its value_mod makes something of 0, and a state's own way through tokens is found with v = 0")
    moved = trial.run(v=zero, state=one)[1]
    mixes = bool(np.count_nonzero(moved) > np.count_nonzero(one))
    alike = trial.run(v=zero, state=np.repeat(trial.state[..., :1], _D, -1))[1]
    if mixes and (np.count_nonzero(moved) > 2 * _D or not np.allclose(alike, alike[..., :1], rtol=1e-12, atol=1e-12)):
        return Nature("its state goes another way for each value channel, besides a delta rule")
    factors = trial.run(v=zero, state=np.ones_like(trial.state))[1]
    by_column = not mixes and bool((factors != factors[..., :1]).any())
    return Nature("", past, future, mixes, by_column, trial.has_norm, _reads_width(trial, alike))


def _reads_width(trial: _Trial, alike) -> bool:
    """alike: what becomes of a state whose columns are the same. Inputs over d_v are looked at where a call is made."""
    if any(d.name == "d_v" for a in trial.op.forward.tensors if a.is_input for d in a.dims):
        return False
    columns = 2 * _D
    state = np.repeat(trial.state[..., :1], columns, -1)
    wide = trial.run(v=np.zeros((1, 2, _T, columns)), state=state)[1]
    return bool((wide[..., :1] != alike[..., :1]).any())
