"""Keys that go round: every rank keeps its queries and has the keys of one rank at a time, while the next ones are
under way. Forward it makes a part of each row for every run of keys, which are put together at the end in the order of
positions, so that it does not matter which came first. Backward sums of dk and dv follow their keys, one step behind,
and come home; dq is summed here, in f32.
"""

from __future__ import annotations

import torch

from ... import _library as c
from ..._arrays import Shaped
from ..._bind import bind, complete
from ..._op import Op
from .._function import wrap
from ._attention import combined, context_for
from ._problem import OPERANDS, Problem
from ._ranks import packed, unpacked
from ._shards import Run

_SIZES = {"b": 1, "seqs": 1, "h": 2, "h_kv": 2, "q": 64, "kv": 64, "d": 64, "d_v": 64, "d2": 64}


def no_gradients(op: Op) -> str:
    """Why the gradients of some of the keys cannot be computed apart, or ""."""
    found = op._extensions.get("gradients of parts")
    if found is None:
        found = op._extensions["gradients of parts"] = _why_none(op)
    return found


def _why_none(op: Op) -> str:
    if not op.has_backward:
        return "it has no gradients; call it under torch.no_grad()"
    missing = [r.name for r in op.forward.results if r.name in op.gradient.by_name and r.name not in _joined(op)]
    if missing:
        return f"its backward pass reads {', '.join(missing)}, which no combine gives"
    given = {"q_start": 0, "kv_start": 0, "len_kv": _SIZES["kv"]}
    made = {r.name for r in op.forward.results}
    for a in op.gradient.tensors:
        if a.role != c.RESULT and (not a.optional or a.is_input or a.name in made):
            shape = tuple(d.times * _SIZES.get(d.name, 64) + d.plus if d.name else d.plus for d in a.dims)
            given[a.name] = Shaped(shape, "f32" if a.dtype == c.NONE else c.DTYPE_NAMES[a.dtype])
    given |= {a.name: 1 for a in op.gradient.scalars if a.is_input}
    try:
        bound = bind(op, op.gradient, (), given | _wanted(op, given), with_data=False)
        complete(op, bound, c.BACKWARD)
        context_for(torch.empty(0)).need_support(op._handle, c.BACKWARD, bound.records())
    except c.UnsupportedError as error:
        return str(error)
    return ""


def _joined(op: Op) -> set:
    return {r.name for r in op.joining.results}


def _wanted(op: Op, given) -> dict:
    return {a.name: True for a in op.gradient.results if a.name[1:] in given}


class Keys:
    """The keys that are here, those of one dtype in one flat tensor, and the next ones."""

    def __init__(self, p: Problem, tensors: dict):
        self.p, self.holder = p, p.ranks.me
        names = [n for n in p.keys if n in tensors]
        dtypes = dict.fromkeys(tensors[n].dtype for n in names)
        self.names = [[n for n in names if tensors[n].dtype == dtype] for dtype in dtypes]
        self.flat = [packed([tensors[n] for n in of], tensors[of[0]].dtype, p.q.device) for of in self.names]
        self.coming: list = []

    def shapes(self, names, rank: int) -> list:
        length = self.p.kv_shards.lengths[rank]
        shape = lambda t: (*t.shape[:2], length, *t.shape[3:])
        return [shape(self.p.tensors[n]) for n in names]

    def before(self) -> int:
        return (self.holder - 1) % self.p.ranks.count

    def send_on(self) -> None:
        sizes = [_size(self.shapes(of, self.before())) for of in self.names]
        self.coming = [self.p.ranks.pass_on(flat, size) for flat, size in zip(self.flat, sizes)]

    def step(self) -> None:
        """The keys of the rank before are here."""
        self.flat = [coming.wait() for coming in self.coming]
        self.coming = []
        self.holder = self.before()

    def runs(self) -> list:
        """(run, its tensors by name) of the rank whose keys are here, but for empty ones."""
        here = {}
        for of, flat in zip(self.names, self.flat):
            here |= dict(zip(of, unpacked(flat, self.shapes(of, self.holder))))
        runs = [run for run in self.p.kv_shards.runs[self.holder] if run.length]
        return [(run, {n: x.narrow(2, run.local, run.length) for n, x in here.items()}) for run in runs]


def _size(shapes) -> int:
    return sum(torch.Size(shape).numel() for shape in shapes)


class Work:
    """One call, as this rank sees it. kept: results that its backward pass reads, beside those that are wanted."""

    def __init__(self, p: Problem, results: tuple[str, ...], trains: bool):
        self.p, self.op, self.results = p, p.op, results
        kept = {a.name for a in p.op.gradient.tensors} if trains else set()
        self.kept = tuple(r.name for r in p.op.forward.results if r.name in kept and r.name in _joined(p.op))
        self.made = tuple(dict.fromkeys(("o", *results, *self.kept)))
        self.context = context_for(p.q)

    def run_of(self, tensors: dict, run: Run) -> dict:
        """What a call of some queries takes, but keys."""
        p = self.p
        own = {n: tensors[n].narrow(2, run.local, run.length) for n in ("q", "q2") if n in tensors}
        own |= {n: p.rows_of(n, run.start, run.length) for n in p.inputs}
        return own | p.others | p.places() | {"q_start": p.q_start + run.start}

    def forward(self, tensors: dict) -> list:
        """Results of own queries, by `made`."""
        runs = [run for run in self.p.q_shards.runs[self.p.ranks.me] if run.length]
        parts: list = [[] for _ in runs]
        for keys in self.rounds(tensors):
            for kv, of_keys in keys.runs():
                where = of_keys | self.places(kv)
                for run, of_run in zip(runs, parts):
                    made = self.op.parts(**self.run_of(tensors, run), **where, context=self.context)
                    of_run.append((kv.start, *made))
        rows = [self.joined(run, sorted(of_run, key=lambda one: one[0])) for run, of_run in zip(runs, parts)]
        return [torch.cat(of_runs, 2) for of_runs in zip(*rows)] if rows else self.nothing(tensors)

    def rounds(self, tensors: dict):
        """The keys of every rank, while those of the next are under way."""
        keys = Keys(self.p, tensors)
        for step in range(self.p.ranks.count):
            if step:
                keys.step()
            if step + 1 < self.p.ranks.count:
                keys.send_on()
            yield keys

    def places(self, kv: Run) -> dict:
        return {"kv_start": kv.start, "len_kv": self.p.kv_shards.total}

    def joined(self, run: Run, parts: list) -> list:
        part_o, part_rows = (torch.stack([part[i] for part in parts]) for i in (1, 2))
        return combined(self.p, self.made, part_o, part_rows, run)

    def nothing(self, tensors: dict) -> list:
        """Of no queries."""
        signature = self.op.forward
        shapes = {n: tuple(t.shape) for n, t in tensors.items() if n in OPERANDS}
        shape_of = lambda n: signature.result_shape(signature.by_name[n], shapes, *signature.sizes(shapes))
        wide = torch.promote_types(self.p.q.dtype, torch.float32)
        return [self.p.q.new_empty(shape_of(n), dtype=self.p.q.dtype if n == "o" else wide) for n in self.made]

    # ---- backward -----------------------------------------------------------------------------------------------

    def backward(self, tensors: dict, kept: dict, seeds: dict, wanted: tuple[str, ...]) -> dict:
        """Gradients by name, in f32 (f64 beside f64)."""
        wide = torch.promote_types(self.p.q.dtype, torch.float32)
        sums = {n: torch.zeros(tensors[n].shape, dtype=wide, device=self.p.q.device) for n in wanted}
        of_keys = [n for n in self.p.keys if n in wanted]
        own = {n: x for n, x in sums.items() if n not in of_keys}
        runs = [run for run in self.p.q_shards.runs[self.p.ranks.me] if run.length]
        coming = None
        for keys in self.rounds(tensors):
            shapes = keys.shapes(of_keys, keys.holder)
            flat = torch.zeros(_size(shapes), dtype=wide, device=self.p.q.device)
            shares = dict(zip(of_keys, unpacked(flat, shapes)))
            for kv, of_kv in keys.runs():
                for run in runs:
                    self.add(own, shares, run, kv, self.call_back(tensors, kept, seeds, run, kv, of_kv, wanted))
            if coming:
                flat = coming.wait().add_(flat)
            after = _size(keys.shapes(of_keys, keys.before()))
            coming = self.p.ranks.pass_on(flat, after) if of_keys else None
        home = unpacked(coming.wait(), keys.shapes(of_keys, self.p.ranks.me)) if coming else []
        return own | dict(zip(of_keys, home))

    def call_back(self, tensors, kept, seeds, run: Run, kv: Run, of_kv: dict, wanted) -> dict:
        of_run = {n: x.narrow(2, run.local, run.length) for n, x in {**kept, **seeds}.items()}
        given = {**self.run_of(tensors, run), **of_run, **of_kv, **self.places(kv)}
        given = {n: x for n, x in given.items() if n in self.op.gradient.by_name}
        made = self.op.backward(**given, **{f"d{n}": True for n in wanted}, context=self.context)
        return made._asdict() if hasattr(made, "_asdict") else {f"d{wanted[0]}": made}

    def add(self, own: dict, shares: dict, run: Run, kv: Run, made: dict) -> None:
        for n, x in own.items():
            to = x.narrow(2, run.local, run.length) if n in OPERANDS else self.p.rows(n, x, run.start, run.length)
            to.add_(made[f"d{n}"])
        for n, x in shares.items():
            x.narrow(2, kv.local, kv.length).add_(made[f"d{n}"])


class Ring(torch.autograd.Function):
    @staticmethod
    def forward(ctx, work: Work, names: tuple[str, ...], *tensors):
        made = dict(zip(work.made, work.forward(dict(zip(names, tensors)))))
        ctx.of = work, names
        ctx.save_for_backward(*tensors, *(made[n] for n in work.kept))
        ctx.set_materialize_grads(False)
        results = [made[n] for n in work.results]
        fixed = [t for n, t in zip(work.results, results) if "d" + n not in work.op.gradient.by_name]
        ctx.mark_non_differentiable(*fixed)
        return tuple(results)

    @staticmethod
    def backward(ctx, *seeds):
        work, names = ctx.of
        saved = ctx.saved_tensors
        tensors, kept = dict(zip(names, saved)), dict(zip(work.kept, saved[len(names) :]))
        given = {"d" + n: seed for n, seed in zip(work.results, seeds) if seed is not None}
        if "do" not in given:
            given["do"] = kept["o"].new_zeros(kept["o"].shape) if "o" in kept else _like_o(tensors)
        wanted = tuple(n for n, need in zip(names, ctx.needs_input_grad[2:]) if need)
        made = work.backward(tensors, kept, given, wanted) if wanted else {}
        return None, None, *(made[n].to(tensors[n].dtype) if n in made else None for n in names)


def _like_o(tensors: dict):
    q, v = tensors["q"], tensors.get("v", tensors["k"])
    return q.new_zeros(*q.shape[:3], v.shape[3])


def ring(p: Problem, results: tuple[str, ...]) -> list:
    names = tuple(p.tensors)
    whole = wrap(p.op)
    if p.trains:
        whole.check_gradients(names, tuple(p.tensors.values()))
    cast = whole.autocast(names, tuple(p.tensors.values()))
    p.tensors = dict(zip(names, cast))
    return list(Ring.apply(Work(p, results, p.trains), names, *cast))
