"""Gradients of a call: what it keeps, where the operands of its backward pass come from, and the functions that
autograd and torch.func know.
"""

from __future__ import annotations

import torch

from .. import _library as c
from .._numbers import number_of
from .._op import Op
from ._batched import each_slice
from ._passes import Pass
from ._register import refuse_forward_mode

_is_grad_enabled = torch.is_grad_enabled


def values_of(form, learned, numbers, exact: bool = True) -> list:
    """Scalars in the order of the signature. exact: f32 ones are f64, as beside tensors of f64."""
    return [
        number_of(name, dtype, learned[i] if is_learned else numbers[i], exact)
        for name, dtype, (is_learned, i) in zip(form.scalars, form.dtypes, form.sources)
    ]


def _reads(op: Op, name: str) -> bool:
    """Does the backward pass read what the forward pass took or gave under this name?

    Of an element-wise spec its gradient may leave out operands that the call itself must have: those no formula reads.
    """
    there = op.gradient.by_name.get(name)
    if there is None or there.role == c.RESULT:
        return False
    before = op.forward.by_name[name]
    return not (op.kind == "elementwise" and there.optional and not before.optional and before.role == c.TENSOR)


class Kept:
    """What a call keeps for its backward pass: the operands and results that this reads. Of the others it keeps what
    they were like: results for gradients that nobody gives, operands for the dtypes of theirs."""

    __slots__ = ("places", "place_of")

    def __init__(self, variant, form):
        names = form.names + variant.results
        self.places = tuple(i for i, n in enumerate(names) if n in form.learned or _reads(variant.op, n))
        self.place_of = {names[i]: place for place, i in enumerate(self.places)}

    def save(self, ctx, tensors, results) -> None:
        every = (*tensors, *results)
        ctx.save_for_backward(*[every[i] for i in self.places])
        ctx.dtypes = [t.dtype for t in tensors]
        ctx.results = [(t.shape, t.dtype, t.device) for t in results]


class Route:
    """Where the operands of a backward pass come from, for one form of call and the gradients that came in: those of
    the results that are named."""

    __slots__ = ("names", "places", "sources", "scalars", "learned")

    KEPT, SEED, ZERO = range(3)

    def __init__(self, variant, form, named: tuple[str, ...], came: tuple[bool, ...]):
        signature = variant.op.gradient
        kept = variant.kept(form).place_of
        results = {"d" + r: i for i, r in enumerate(variant.results)}
        seeds = {"d" + r: i for i, (r, there) in enumerate(zip(named, came)) if there}
        # Sizes follow from operands; where those are not kept, from the gradients of all results.
        all_seeds = any(n in signature.by_name and not _reads(variant.op, n) for n in form.operands)
        self.names, self.places, self.sources = [], [], []
        for place, argument in enumerate(signature.tensors):
            name = argument.name
            if name in seeds:
                source = (self.SEED, seeds[name])
            elif name in results:
                if argument.optional and not all_seeds:
                    continue
                source = (self.ZERO, results[name])
            elif name in kept and _reads(variant.op, name):
                source = (self.KEPT, kept[name])
            else:
                continue
            self.names.append(name)
            self.places.append(place)
            self.sources.append(source)
        self.names = tuple(self.names)
        self.scalars = tuple(a.name for a in signature.scalars if a.name in form.scalars)
        self.learned = [kept[n] for n in form.learned]

    def operands(self, kept, results, seeds) -> list:
        """A gradient that nobody gives is zero, where it cannot be left out. results: what they are like."""
        return [
            kept[i] if kind == self.KEPT else seeds[i] if kind == self.SEED else _zeros(*results[i])
            for kind, i in self.sources
        ]


def _zeros(shape, dtype, device):
    return torch.zeros(shape, dtype=dtype, device=device)


class Turn:
    """The backward pass of one form of call, for the gradients that are wanted and those that came in: all that is
    decided before tensors are looked at."""

    __slots__ = ("work", "given", "route", "wanted", "places", "nothing")

    def __init__(self, gradients: "Gradients", form, wanted: tuple[str, ...], route: Route):
        self.wanted = wanted
        self.work = gradients.pass_of(wanted)
        self.route = route
        self.given = self.work.given(route.names, route.scalars)
        self.places = [1 + form.names.index(n[1:]) for n in self.wanted]
        self.nothing = [None] * (1 + len(form.names))

    def run(self, form, kept, results, numbers, seeds) -> list:
        """Gradients in the order of `wanted`."""
        route = self.route
        operands = route.operands(kept, results, seeds)
        return self.work.run(self.given, operands, self._values(form, kept, numbers) if route.scalars else ())[0]

    def _values(self, form, kept, numbers) -> list:
        by_name = dict(zip(form.scalars, values_of(form, [kept[i] for i in self.route.learned], numbers)))
        return [by_name[n] for n in self.route.scalars]


class Gradients:
    """The backward pass of a variant, for each set of gradients that is wanted."""

    def __init__(self, variant):
        self.variant = variant
        self.signature = variant.op.gradient
        differentiable = ["d" + r in self.signature.by_name for r in variant.results]
        self.fixed = [i for i, d in enumerate(differentiable) if not d]
        self._order = [r.name for r in self.signature.results]
        self._passes: dict[tuple[str, ...], Pass] = {}
        self._routes: dict[tuple, Route] = {}
        self._turns: dict[tuple, Turn] = {}

    def wanted_of(self, names, needs) -> tuple[str, ...]:
        """Names of gradients, in the order of the signature."""
        has = self.variant.function.has_gradient
        return tuple(sorted(("d" + n for n, need in zip(names, needs) if need and n in has), key=self._order.index))

    def pass_of(self, wanted: tuple[str, ...]) -> Pass:
        found = self._passes.get(wanted)
        if found is None:
            found = self._passes[wanted] = Pass(self.variant.op, c.BACKWARD, self.variant.function.layout, wanted)
        return found

    def route(self, form, named: tuple[str, ...], seeds) -> Route:
        """named: the results that seeds are of."""
        key = (form, named, tuple([s is not None for s in seeds]))
        found = self._routes.get(key)
        if found is None:
            found = self._routes[key] = Route(self.variant, form, named, key[2])
        return found

    def turn(self, form, needs: tuple[bool, ...], seeds) -> Turn:
        """Of an eager call, whose function gives the results that its caller wants."""
        key = (form, needs, seeds[0] is not None if len(seeds) == 1 else tuple([s is not None for s in seeds]))
        found = self._turns.get(key)
        if found is None:
            route = self.route(form, self.variant.chosen_names, seeds)
            found = self._turns[key] = Turn(self, form, self.wanted_of(form.names, needs[1:]), route)
        return found

    def turn_to(self, form, wanted: tuple[str, ...], seeds) -> Turn:
        """For these gradients, from those of all results."""
        route = self.route(form, self.variant.results, seeds)
        found = self._turns.get((route, wanted))
        if found is None:
            found = self._turns[route, wanted] = Turn(self, form, wanted, route)
        return found


class Eager(torch.autograd.Function):
    """of: the variant, the form of the call, its numbers. Gives what the caller wants: one tensor, or several."""

    @staticmethod
    def forward(ctx, of, *tensors):
        variant, form, numbers = ctx.of = of
        results, plan = variant.run(form, tensors, numbers)
        every = (*tensors, *results)
        ctx.save_for_backward(*[every[i] for i in variant.kept(form).places])
        ctx.results = plan.results
        ctx.dtypes = [t.dtype for t in tensors] if form.learned else plan.dtypes
        if variant.only_one is not None:
            return results[variant.only_one]  # this function does not run backward without its gradient
        ctx.set_materialize_grads(False)
        fixed = [results[i] for i in variant.chosen if i in variant.gradients.fixed]
        if fixed:
            ctx.mark_non_differentiable(*fixed)
        return tuple([results[i] for i in variant.chosen])

    @staticmethod
    def backward(ctx, *seeds):
        variant, form, numbers = ctx.of
        needs = ctx.needs_input_grad
        if all([s is None for s in seeds]):
            return (None,) * len(needs)
        turn = variant.gradients.turn(form, needs, seeds)
        if _is_grad_enabled():  # create_graph: by an operator, whose own derivative is refused
            made = variant.operators.backward(form, turn.wanted, turn.route, ctx, numbers, seeds)
        else:
            made = turn.run(form, ctx.saved_tensors, ctx.results, numbers, seeds)
        answer = turn.nothing.copy()
        dtypes = ctx.dtypes
        for place, gradient in zip(turn.places, made):
            dtype = dtypes[place - 1]
            answer[place] = gradient if gradient.dtype is dtype else gradient.to(dtype)
        return tuple(answer)

    @staticmethod
    def jvp(ctx, *tangents):
        refuse_forward_mode(ctx.of[0].op.name)


# What Function.apply does beside, for torch.func and for wrappers that it has left behind, is done where we are called.
apply_eager = super(torch.autograd.Function, Eager).apply


class Functional(torch.autograd.Function):
    """The same for torch.func, which wants the context apart, and an operator for tensors that it has wrapped."""

    @staticmethod
    def forward(variant, form, numbers, *tensors):
        return tuple(variant.run(form, tensors, numbers)[0])

    @staticmethod
    def setup_context(ctx, inputs, output):
        variant, form, numbers, *tensors = inputs
        ctx.of = (variant, form, numbers)
        variant.kept(form).save(ctx, tensors, output)
        ctx.set_materialize_grads(False)
        fixed = variant.gradients.fixed if variant.gradients else ()
        if fixed:
            ctx.mark_non_differentiable(*(output[i] for i in fixed))

    @staticmethod
    def backward(ctx, *seeds):
        variant, form, numbers = ctx.of
        needs = ctx.needs_input_grad
        if all(s is None for s in seeds):
            return (None,) * len(needs)
        gradients = variant.gradients
        wanted = gradients.wanted_of(form.names, needs[3:])
        route = gradients.route(form, variant.results, seeds)
        made = variant.operators.backward(form, wanted, route, ctx, numbers, seeds)
        by_name = {n[1:]: gradient for n, gradient in zip(wanted, made)}
        as_given = (by_name[n].to(d) if n in by_name else None for n, d in zip(form.names, ctx.dtypes))
        return None, None, None, *as_given

    @staticmethod
    def jvp(ctx, *tangents):
        refuse_forward_mode(ctx.of[0].op.name)

    @staticmethod
    def vmap(info, in_dims, variant, form, numbers, *tensors):
        one = lambda *slices: Functional.apply(variant, form, numbers, *slices)
        return each_slice(one, info, in_dims[3:], *tensors)
