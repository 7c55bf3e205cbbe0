"""Calls that write states where they were read, as servers make them: over initial_state, or in slots of a pool."""

from __future__ import annotations

import torch

from .. import _library as c
from .._layout import order
from ._call import LAYOUT, Call, as_given, op_of


class InPlace(Call):
    """index [n] or [n, width]: the slot of initial_state that each token's state is written to; a sequence begins with
    that of its first token, or of the last one of `accepted` [n] tokens that the call before has made."""

    def __init__(self, *tokens, index=None, accepted=None, **named):
        named["output_final_state"] = False  # it is initial_state
        super().__init__(*tokens, **named)
        self.pool = named["initial_state"]
        if self.form.normalise or not isinstance(self.pool, torch.Tensor):
            raise c.ArgumentError("initial_state: expected a tensor of states, which are written over"
                                  + (", without the sum of keys of normalize" if self.form.normalise else ""))
        if index is None and accepted is not None:
            raise c.ArgumentError("num_accepted_tokens: counts slots of a row of ssm_state_indices, which is missing")
        if index is not None:
            self._add_slots(index, accepted)
        self.results = ("o",) if index is not None else ("o", "state_out")

    def _add_slots(self, index, accepted) -> None:
        cu = self.operands.get("cu")
        b, t = self.operands["q"].shape[:2]
        n = b if cu is None else cu.shape[0] - 1
        if index.dim() == 1 and b * t == n:
            index = index[:, None]
        if index.dim() != 2 or index.shape[0] != n or cu is None and index.shape[1] < t:
            raise c.ArgumentError(
                f"ssm_state_indices: expected a slot for each token, [{n}, {t if cu is None else 'longest sequence'}]"
                f"{', or [' + str(n) + '] for one token each' if t * b == n else ''}, given {list(index.shape)}")
        index = index.clamp(min=-1).to(torch.int32)  # a negative slot is none
        begin = torch.zeros(n, 1, dtype=torch.int64, device=index.device)
        if accepted is not None:
            begin = accepted.to(torch.int64)[:, None].clamp(min=1) - 1
        self.operands["state_index"] = index.gather(1, begin)[:, 0]
        self.operands["states"] = self.operands["state"]
        self.operands["states_index"] = index[:, :t] if cu is None else _of_packed(index, cu, t)

    def run(self):
        """(o, initial_state), which has the states behind the tokens now."""
        self._check_tensors()
        if self._learns():
            raise c.UnsupportedError(_NO_GRADIENT)
        op = op_of(self.form)
        q, v = self.operands["q"], self.operands["v"]
        o = torch.empty(*q.shape[:2], *v.shape[2:], dtype=q.dtype, device=q.device)
        if "states_index" not in self.operands:
            self.operands["state_out"] = self.operands["state"]
        with torch.no_grad(), as_given(q):
            op(**{n: _turned(op, n, t) for n, t in {**self.operands, "o": o}.items()})
        return o, self.pool

    def refusal(self) -> str | None:
        return _NO_GRADIENT if self._learns() else super().refusal()

    def _learns(self) -> bool:
        return torch.is_grad_enabled() and any(t.requires_grad for _, t in self._tensors())

    def _expected_states(self, n: int) -> int | None:
        return None if "states_index" in self.operands else n

    def _code(self, name: str, t) -> int:
        if name in ("state", "states"):
            return super()._code("q", t)
        return super()._code("cu" if name.endswith("_index") else name, t)


_NO_GRADIENT = "inplace_final_state: a state that is written over has no gradient; call it under torch.no_grad()"


def _of_packed(index, cu, t: int):
    """[1, t]: of token number i of a sequence its slot i; of none beyond the last sequence or the row."""
    tokens = torch.arange(t, device=index.device)
    ends = cu[1:].to(tokens)
    of = torch.searchsorted(ends, tokens, right=True).clamp(max=max(len(ends) - 1, 0))
    place = tokens - cu[:-1].to(tokens)[of]
    inside = (place < index.shape[1]) & (tokens < ends[of])
    return torch.where(inside, index[of, place.clamp(max=index.shape[1] - 1)], -1)[None]


def _turned(op, name: str, t):
    argument = op.forward.by_name[name]
    if not isinstance(t, torch.Tensor):
        return t
    if argument.dtype == c.I32:
        return t.to(torch.int32)
    return t.permute(order(LAYOUT, op, argument))
