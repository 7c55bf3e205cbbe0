"""Linear attention over several ranks: each computes its own tokens, from the state behind those of the ranks before.

A rank between two others first finds what its tokens add to a state, and what becomes of one on the way through them;
all of it is gathered once, and each rank puts together the state that it begins with. The first and the last rank
need no such pass: two ranks send a state, and nothing is computed twice. Backward the same, from the last to the first.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from ... import _library as c
from ..._nature import Nature, counts_tokens, nature
from ..._op import Op
from .._function import wrap
from ._attention import context_for
from ._problem import Problem
from ._ranks import added


RESULTS = ("o", "state_out", "norm_out")  # of all tokens; the state and its norm are the same on every rank


def has_updates(op: Op) -> bool:
    return any(d.name == "t" and d.times != 1 for a in op.arguments for d in a.dims)


def refusal(op: Op, s) -> str:
    """Why a problem is not cut by its tokens, or ""."""
    if s.packed:
        return "packed sequences (cu) may end within a rank's tokens; give every rank whole sequences"
    if s.zigzag:
        return "a state goes through tokens in their order: order='contiguous'"
    if has_updates(op):
        return "its tokens make several updates each, which are not cut; give every rank whole sequences"
    of_state = nature(op)
    if of_state.refused:
        return of_state.refused
    if of_state.mixes and s.ranks > 2 and s.d != s.d_v and any(d.name == "d_v" for a in op.arguments for d in a.dims
                                                               if a.is_input):  # fmt: skip
        return "an input over d_v, which is not d, stands in the way of finding what becomes of a state"
    if of_state.mixes and s.ranks > 2 and s.d != s.d_v and of_state.reads_width:
        return ("it reads at.d_v, which is not d, and what becomes of a state is found with d value channels; give "
                "that number as a scalar input")  # fmt: skip
    counted = "" if s.offset else counts_tokens(op)
    return counted and (f"{counted}, and the tokens of a rank are not all; where an i32 scalar of the spec is added to "
                        "them, wrap(offset=NAME) gives it")  # fmt: skip


class State(NamedTuple):
    """What goes from token to token: S [b, h, d, d_v], and z [b, h, d] where the spec divides by it."""

    s: torch.Tensor
    z: torch.Tensor | None = None

    def named(self, state: str, norm: str) -> dict:
        return {state: self.s} if self.z is None else {state: self.s, norm: self.z}

    def tensors(self) -> list:
        return [self.s] if self.z is None else [self.s, self.z]

    def plus(self, other: "State | None") -> "State":
        return self if other is None else State(*(a + b for a, b in zip(self, other) if a is not None))


class Work:
    """One call over all ranks, as this rank sees it. `place` is its place in the order in which states travel."""

    def __init__(self, p: Problem, names: tuple[str, ...]):
        self.p, self.op, self.ranks = p, p.op, p.ranks
        self.nature: Nature = nature(p.op)
        self.names = names  # of the tensors that a call reads, beside states
        self.backwards = self.nature.reads_future and not self.nature.whole
        last = self.ranks.count - 1
        self.place = last - self.ranks.me if self.backwards else self.ranks.me
        self.last = last
        v = p.tensors["v"]
        self.dtype = torch.float64 if v.dtype == torch.float64 else torch.float32
        self.sizes = (v.shape[0], v.shape[1], p.q.shape[3], v.shape[3])
        self.context = context_for(v)

    def zero(self) -> State:
        return self.filled(0)

    def filled(self, value: float) -> State:
        made = torch.full(self.sizes, value, dtype=self.dtype, device=self.p.q.device)
        return State(made, made[..., 0].contiguous() if self.nature.has_norm else None)

    def forward(self, given: dict, state: State | None, wanted: tuple[str, ...]) -> dict:
        before = {} if state is None else state.named("state", "norm")
        results = dict.fromkeys(("o", "state_out", *(("norm_out",) if self.nature.has_norm else ())), False)
        results |= dict.fromkeys(wanted, True)
        if results["state_out"] and self.nature.has_norm:
            results["norm_out"] = True
        results["o"] = True  # which every call has
        made = self.op(**given, **self.p.numbers, **before, **results, context=self.context)
        return made._asdict() if hasattr(made, "_asdict") else {"o": made}

    def state_behind(self, given: dict, state: State | None) -> State:
        made = self.forward(given, state, ("state_out",))
        return State(made["state_out"], made.get("norm_out"))

    # ---- from place to place ------------------------------------------------------------------------------------

    def transition(self, given: dict) -> torch.Tensor:
        """What becomes of a state: a matrix [b, h, d, d], or a factor of each element [b, h, d, d_v]."""
        b, h, d, d_v = self.sizes
        v = given["v"]
        if not self.nature.mixes:
            return self.state_behind({**given, "v": torch.zeros_like(v)}, self.filled(1)).s
        one = torch.eye(d, dtype=self.dtype, device=v.device).expand(b, h, d, d).contiguous()
        return self.state_behind({**given, "v": v.new_zeros(*v.shape[:3], d)}, State(one)).s

    def through(self, turn: torch.Tensor, state: State, back: bool = False) -> State:
        if self.nature.mixes:  # in f64, which neither autocast nor TF32 takes for a shorter type
            return State(((turn.mT if back else turn).double() @ state.s.double()).to(self.dtype))
        return State(turn * state.s, None if state.z is None else turn[..., 0] * state.z)

    def gathered(self, state: State, *more: torch.Tensor) -> list[list]:
        """Of every place: the state, and what goes with it."""
        mine = [*state.tensors(), *more]
        come = self.ranks.gather(mine, [[t.shape for t in mine]] * self.ranks.count, self.dtype, mine[0].device)
        come = come[::-1] if self.backwards else come
        n = len(state.tensors())
        return [[State(*of_place[:n]), *of_place[n:]] for of_place in come]


def _run(w: Work, given: dict, before: State | None):
    """o, the last state of this rank, the state that it began with, and what becomes of one at each place."""
    if w.nature.whole:
        mine = w.state_behind(given, before if w.place == 0 else None)
        others = [of_place[0] for at, of_place in enumerate(w.gathered(mine)) if at != w.place]
        begins = State(*(added(list(part)) for part in zip(*others) if part[0] is not None))
        if w.place == 0:
            begins = begins.plus(before)
        made = w.forward(given, begins, ("state_out",))
        return made, begins, None
    made, mine, turn = None, w.zero(), None
    if w.place == 0:
        made = w.forward(given, before, ("state_out",))
        mine = State(made["state_out"], made.get("norm_out"))
    elif w.place < w.last:
        mine = w.state_behind(given, None)
    if w.last > 1:
        turn = w.transition(given) if 0 < w.place < w.last else _no_turn(w)
    come = w.gathered(mine) if turn is None else w.gathered(mine, turn)
    begins = before if w.place == 0 else come[0][0]
    for at in range(1, w.place):
        begins = w.through(come[at][1], begins).plus(come[at][0])
    if w.place > 0:
        made = w.forward(given, begins, ("state_out",))
    return made, begins, [of_place[1] for of_place in come] if w.last > 1 else None


def _no_turn(w: Work) -> torch.Tensor:
    b, h, d, d_v = w.sizes
    return torch.zeros(b, h, d, d if w.nature.mixes else d_v, dtype=w.dtype, device=w.p.q.device)


def _from_place(w: Work, state: State, place: int) -> State:
    """A state that one rank has, everywhere."""
    return w.gathered(state if w.place == place else w.zero())[place][0]


class States(torch.autograd.Function):
    """o, and the state behind all tokens where it is asked for."""

    @staticmethod
    def forward(ctx, w: Work, wants_state: bool, *tensors):
        given = dict(zip(w.names, tensors))
        states = {n: given.pop(n) for n in ("state", "norm") if n in given}
        before = State(states["state"], states.get("norm")) if states else None
        made, begins, turns = _run(w, given, before)
        results = [made["o"]]
        if wants_state:
            results += _from_place(w, State(made["state_out"], made.get("norm_out")), w.last).tensors()
        keeps_o = [made["o"]] if "o" in w.op.gradient.by_name else []
        begun = [] if begins is None else begins.tensors()
        ctx.of = w, turns, len(begun), bool(keeps_o), before is not None
        ctx.save_for_backward(*tensors, *begun, *keeps_o)
        ctx.set_materialize_grads(False)
        return tuple(results)

    @staticmethod
    def backward(ctx, do, *behind):
        w, turns, n_begun, keeps_o, has_state = ctx.of
        saved = list(ctx.saved_tensors)
        given = dict(zip(w.names, saved))
        given = {n: t for n, t in given.items() if n not in ("state", "norm")}
        begun = saved[len(w.names) : len(w.names) + n_begun]
        if begun:
            given |= State(*begun).named("state", "norm")
        if keeps_o:
            given["o"] = saved[-1]
        needs = dict(zip(w.names, ctx.needs_input_grad[2:]))
        wanted = [n for n in w.names if needs[n] and n not in ("state", "norm")]
        seed = _summed(w, behind)
        do = torch.zeros_like(given["v"]) if do is None else do
        gradients = _back(w, given, do, seed, wanted, turns, has_state)
        if has_state and w.place > 0:  # the share of the first rank is all of it
            zero = w.zero()
            gradients |= {"state": zero.s, "norm": zero.z}
        cast = lambda n: gradients[n].to(given[n].dtype) if n in given and n not in ("state", "norm") else gradients[n]
        return None, None, *(cast(n) if needs[n] else None for n in w.names)


def _summed(w: Work, behind) -> State | None:
    """Gradients of the last state: every rank has one, and they are added."""
    if not any(g is not None for g in behind):
        return None
    zero = w.zero().tensors()
    mine = State(*(z if g is None else g for g, z in zip(behind, zero)))
    come = [of_place[0] for of_place in w.gathered(mine)]
    return State(*(added(list(part)) for part in zip(*come) if part[0] is not None))


def _call_back(w: Work, given: dict, do, behind: State | None, wanted) -> dict:
    seeds = {} if behind is None else behind.named("dstate_out", "dnorm_out")
    if not wanted:
        return {}
    made = w.op.backward(**given, **w.p.numbers, do=do, **seeds, **{f"d{n}": True for n in wanted}, context=w.context)
    made = made._asdict() if hasattr(made, "_asdict") else {f"d{wanted[0]}": made}
    return {n: made[f"d{n}"] for n in wanted}


def _back(w: Work, given: dict, do, seed: State | None, wanted: list, turns, has_state: bool) -> dict:
    """Gradients by name, of the first rank's state too; seed: of the state behind all tokens."""
    of_state = ["state", "norm"] if w.nature.has_norm else ["state"]
    of_first = of_state if has_state and w.place == 0 else []
    state_of = lambda made: State(made["state"], made.get("norm"))
    if w.nature.whole:
        mine = state_of(_call_back(w, given, do, None, of_state))
        others = [of_place[0] for at, of_place in enumerate(w.gathered(mine)) if at != w.place]
        behind = State(*(added(list(part)) for part in zip(*others) if part[0] is not None)).plus(seed)
        return _call_back(w, given, do, behind, wanted + of_first)
    gradients, mine = None, w.zero()
    if w.place == w.last:
        gradients = _call_back(w, given, do, seed, wanted + of_state)
        mine = state_of(gradients)
    elif w.place > 0:
        mine = state_of(_call_back(w, given, do, None, of_state))
    come = [of_place[0] for of_place in w.gathered(mine)]
    if w.place == w.last:
        return gradients
    behind = come[w.last]
    for at in range(w.last - 1, w.place, -1):
        behind = w.through(turns[at], behind, back=True).plus(come[at])
    return _call_back(w, given, do, behind, wanted + of_first)


def states(p: Problem, results: tuple[str, ...]) -> list:
    if (p.n_h, p.h_first) != (p.heads, 0):
        raise c.UnsupportedError(f"{p.op.name}: heads and tokens of linear attention are not both shared out")
    wants_state = any(n in results for n in ("state_out", "norm_out"))
    names = tuple(p.tensors)
    cast = wrap(p.op).autocast(names, tuple(p.tensors.values()))
    p.tensors = dict(zip(names, cast))
    made = States.apply(Work(p, names), wants_state, *cast)
    by_name = dict(zip(RESULTS, made))
    return [by_name[n] for n in results]
