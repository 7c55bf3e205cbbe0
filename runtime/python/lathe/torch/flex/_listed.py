"""A BlockMask's lists in a compiled graph: an operator that takes them beside what the mods read.

Where they say what the mask's function says, the formula alone serves, and a kernel knows its tiles without reading a
list. That is seen when the operator runs, once for lists and tensors that stay the same; a compiler sees no values.
"""

from __future__ import annotations

import hashlib
import weakref
from types import SimpleNamespace

import torch
from torch.fx import GraphModule

from .._register import define, differentiate, refuse_second
from ._blocks import compare, table_of_blocks

_operators: dict[tuple, "Listed"] = {}
_MOST = 256  # decisions that are kept


class Mask:
    """The function of a BlockMask as a graph, the length of its blocks, and the lengths that it was made for."""

    def __init__(self, graph: GraphModule, size: tuple[int, int], lengths: tuple[int, int]):
        self.graph, self.size, self.lengths = graph, size, lengths
        holds = any(n.op == "get_attr" for n in graph.graph.nodes)
        self.key = (graph.code, id(graph) if holds else 0, size, lengths)


def operator_of(plain, listed, mask: Mask) -> "Listed":
    """plain, listed: functions of the mods without lists and with the tables that lists are made into."""
    key = (plain.op.digest, listed.op.digest, plain.wanted, mask.key)
    found = _operators.get(key)
    if found is None:
        found = _operators[key] = Listed(plain, listed, mask, key)
    return found


class Listed:
    LISTS = 4  # kv_num_blocks, kv_indices, and those of full blocks

    def __init__(self, plain, listed, mask: Mask, key):
        self.plain, self.listed, self.mask = plain, listed, mask
        self.decisions: dict[tuple, tuple] = {}
        self.stem = f"flex_{hashlib.sha256(repr(key).encode()).hexdigest()[:16]}"
        self.tensors = plain.names  # of operands and of scalars that are tensors; None where they are not given
        self.n = len(self.tensors)
        self.results = plain.training.results
        required = {a.name for a in plain.op.forward.tensors if not a.optional}
        parameters = [f"Tensor{'' if n in required else '?'} {n}" for n in self.tensors]
        parameters += [f"SymInt? {n}" for n in plain.numbers]  # all of them are i32: floats are tensors here
        parameters += [f"Tensor? list__{i}" for i in range(self.LISTS)]
        parameters += ["Tensor[] mask__tensors", "SymInt[] mask__ints"]
        self.parameters = parameters
        self.operator, is_new = define(self.stem, _schema(parameters, self.results), self._run, self._fake)
        if is_new:
            differentiate(self.stem, plain.op.name, self._run, self._backward, self._setup)
        self._backwards: dict[tuple, object] = {}

    def __call__(self, q, k, v, given: dict, lists, more):
        of = {"q": q, "k": k, "v": v, "q_start": 0, **given}
        tensors = self.plain.autocast(self.tensors, tuple(of.get(n) for n in self.tensors))
        args = [*tensors, *(of.get(n) for n in self.plain.numbers)]
        counts = [one for one in more if not isinstance(one, torch.Tensor)]
        made = self.operator(*args, *lists, [t for t in more if isinstance(t, torch.Tensor)], counts)
        return self.plain.training.pick(made)

    # ---- which function ------------------------------------------------------------------------------------------

    def _function(self, args):
        """The function that serves the lists, and its tables by their names."""
        lists, more, counts = args[-2 - self.LISTS : -2], args[-2], args[-1]
        tensors = [t for t in (*lists, *more) if t is not None]
        key = (*((id(t), t._version) for t in tensors), *counts)
        found = self.decisions.get(key)
        if found is None or any(ref() is not t for ref, t in zip(found[0], tensors)):
            agrees = self._agrees(lists, more, counts)
            if len(self.decisions) >= _MOST:
                self.decisions.clear()
            if agrees is None:  # not seen, while a CUDA graph is captured
                return self.listed, self._tables(lists)
            found = self.decisions[key] = ([weakref.ref(t) for t in tensors], agrees)
        return (self.plain, {}) if found[1] else (self.listed, self._tables(lists))

    def _agrees(self, lists, more, counts) -> bool | None:
        if lists[0].is_cuda and torch.cuda.is_current_stream_capturing():
            return None
        partial, full = self._blocks(lists)
        given = _merged(self.mask.graph, more, counts)
        mod = lambda b, h, q, kv: self.mask.graph(b, h, q, kv, *given)  # noqa: E731
        try:
            return all(compare(mod, self.mask.size, self.mask.lengths, partial, full))
        except RuntimeError:  # a function that vmap does not take: the lists serve all the same
            return False

    def _blocks(self, lists):
        size, lengths = self.mask.size, self.mask.lengths
        table = lambda counts, indices: table_of_blocks(counts, indices, size, lengths)  # noqa: E731
        partial = table(*lists[:2])
        return partial, torch.zeros_like(partial) if lists[2] is None else table(*lists[2:])

    def _tables(self, lists) -> dict:
        partial, full = self._blocks(lists)
        tables = {"live_blocks": (partial | full).int()}
        return tables if lists[2] is None else tables | {"whole_blocks": full.int()}

    # ---- passes ----------------------------------------------------------------------------------------------------

    def _form(self, function, args, tables=None):
        """The form of a call of one of the functions, its tensors, its numbers."""
        of = dict(zip((*self.tensors, *self.plain.numbers), args))
        q = of["q"]
        for name, table in (tables or {}).items():
            of[name] = table.expand(q.shape[0], q.shape[1], *table.shape[2:])
        tensors = [of.get(n) for n in function.names]
        numbers = [of.get(n) for n in function.numbers]
        form = function.form(tuple(t is not None for t in tensors), tuple(n is not None for n in numbers))
        return form, tuple(t for t in tensors if t is not None), tuple(n for n in numbers if n is not None)

    def _run(self, *args):
        function, tables = self._function(args)
        return _answer(function.training.run(*self._form(function, args, tables))[0])

    def _fake(self, *args):
        form, tensors, _ = self._form(self.plain, args)
        work = self.plain.training.forward
        return _answer(work.fake(work.given(form.operands, form.scalars), tensors[: form.n_operands]))

    def _setup(self, ctx, inputs, output):
        results = output if isinstance(output, (tuple, list)) else (output,)
        *args, more, counts = inputs
        tensors = [t for t in args if isinstance(t, torch.Tensor)]
        ctx.save_for_backward(*tensors, *more, *results)
        ctx.places = [i for i, t in enumerate(args) if isinstance(t, torch.Tensor)]
        ctx.args = [None if isinstance(t, torch.Tensor) else t for t in args]
        ctx.n_more, ctx.counts = len(more), counts
        ctx.set_materialize_grads(False)

    def _backward(self, ctx, *seeds):
        needs = ctx.needs_input_grad[: self.n]
        n_args, kept = len(ctx.args), ctx.saved_tensors
        nothing = (*(None,) * (n_args - self.n), [None] * ctx.n_more, [None] * len(ctx.counts))
        if all(s is None for s in seeds):
            return (*(None,) * self.n, *nothing)
        args = list(ctx.args)
        for place, t in zip(ctx.places, kept):
            args[place] = t
        n = len(ctx.places)
        more, results = list(kept[n : n + ctx.n_more]), kept[n + ctx.n_more :]
        wanted = self.plain.training.gradients.wanted_of(self.tensors, needs)
        made = self._backward_operator(wanted)(*args, more, ctx.counts, *results, *seeds)
        by_name = dict(zip(wanted, made if isinstance(made, (tuple, list)) else (made,)))
        return (*(by_name.get("d" + n) for n in self.tensors), *nothing)

    def _backward_operator(self, wanted: tuple[str, ...]):
        found = self._backwards.get(wanted)
        if found is None:
            name = f"{self.stem}_backward_{'_'.join(wanted)}"
            parameters = self.parameters + [f"Tensor {r}_made" for r in self.results]
            parameters += [f"Tensor? d{r}_came" for r in self.results]
            schema = _schema(parameters, [f"{w}_made" for w in wanted])
            run = lambda *args: self._run_backward(wanted, args)  # noqa: E731
            fake = lambda *args: self._fake_backward(wanted, args)  # noqa: E731
            found, is_new = define(name, schema, run, fake)
            if is_new:
                title = self.plain.op.name
                differentiate(name, title, run, lambda ctx, *seeds: refuse_second(title), None)
            self._backwards[wanted] = found
        return found

    def _run_backward(self, wanted, args):
        m = len(self.results)
        args, results, seeds = args[: -2 * m], args[-2 * m : -m], args[-m:]
        function, tables = self._function(args)
        form, tensors, numbers = self._form(function, args, tables)
        variant = function.training
        kept = SimpleNamespace()
        kept.save_for_backward = lambda *t: setattr(kept, "saved_tensors", t)
        variant.kept(form).save(kept, tensors, results)
        turn = variant.gradients.turn_to(form, wanted, seeds)
        made = turn.run(form, kept.saved_tensors, kept.results, numbers, seeds)
        of = dict(zip(self.tensors, args))
        return _answer([g.to(of[w[1:]].dtype) for w, g in zip(wanted, made)])

    def _fake_backward(self, wanted, args):
        of = dict(zip(self.tensors, args))
        return _answer([of[w[1:]].new_empty(of[w[1:]].shape) for w in wanted])


def _merged(graph: GraphModule, tensors, counts) -> list:
    """What a graph takes after its four indices, in its order."""
    tensors, counts = list(tensors), list(counts)
    places = [n for n in graph.graph.nodes if n.op == "placeholder"][4:]
    is_count = [n.type is torch.SymInt or isinstance(n.meta.get("example_value"), (int, torch.SymInt)) for n in places]
    return [counts.pop(0) if count else tensors.pop(0) for count in is_count]


def _schema(parameters, results) -> str:
    return f"({', '.join(parameters)}) -> ({', '.join(['Tensor'] * len(results))})"


def _answer(results):
    return results[0] if len(results) == 1 else tuple(results)
