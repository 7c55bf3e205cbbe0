"""Operators of torch.library for a spec: what compilers, modes and functorch see.

One operator for the forward pass of a variant, one for each set of gradients that is asked for. Their names hold a
digest of the spec, so that a graph which was cached in one process means the same in another.
"""

from __future__ import annotations

import functools
import sys

import torch
from torch.autograd import forward_ad

from .. import _library as c
from .._numbers import number_of
from ._batched import each_slice

try:
    from torch._library.autograd import Info, make_autograd_impl
except ImportError:  # another torch: its own way is taken
    make_autograd_impl = None

_interpreters = torch._C._functorch.peek_interpreter_stack
_trace = torch._C._get_tracing_state
PLAIN = (torch.Tensor, torch.nn.Parameter)
_library = torch.library.Library("lathe", "FRAGMENT")
_registered: dict[str, object] = {}
_TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order)


def _tell_inductor(overload) -> None:
    """Inductor calls the operator as it is. It would find that out by itself; but torch 2.11, when it meets an operator
    for the first time, prints its operands with all that they are made of, which takes hours behind a dozen layers.
    """
    lowering = sys.modules.get("torch._inductor.lowering")  # there wherever Inductor compiles
    if hasattr(lowering, "make_fallback") and overload not in lowering.lowerings:
        lowering.make_fallback(overload, lowering.constrain_to_fx_strides, warn=False)


def define(name: str, schema: str, run, fake):
    """The overload of that name, made once in a process."""

    def traced(*args):
        _tell_inductor(_registered[name])
        return fake(*args)

    if name not in _registered:
        _library.define(name + schema, tags=_TAGS)
        for key in ("CPU", "CUDA"):
            _library.impl(name, run, key)
        torch.library.register_fake(f"lathe::{name}", traced, lib=_library)
        _registered[name] = getattr(torch.ops.lathe, name).default
        return _registered[name], True
    return _registered[name], False


def differentiate(name: str, title: str, run, backward, setup) -> None:
    """Gradients of an operator. A compiled graph calls it where none are wanted any more: then the way through the
    dispatcher is cut short, which is most of what such a call costs. Under vmap it runs once for each slice.
    """
    overload = getattr(torch.ops.lathe, name).default
    torch.library.register_vmap(f"lathe::{name}", functools.partial(each_slice, overload), lib=_library)
    torch.library.register_autograd(f"lathe::{name}", backward, setup_context=setup, lib=_library)
    if make_autograd_impl is None:
        return
    general = make_autograd_impl(overload, Info(backward, setup))

    def fast(keyset, *args):
        if forward_ad._current_level >= 0:
            refuse_tangents(title, args)
        if _interpreters() is not None and torch._C._any_requires_grad(*args):
            refuse_compiled_func(title)
        if (torch._C.is_grad_enabled() and torch._C._any_requires_grad(*args)) or torch._C._len_torch_dispatch_stack():
            return general(keyset, *args)
        for a in args:
            if isinstance(a, torch.Tensor) and type(a) not in PLAIN:
                return general(keyset, *args)
        return run(*args)

    for key in ("AutogradCPU", "AutogradCUDA"):
        _library.impl(name, fast, key, with_keyset=True)


def refuse_tangents(name: str, args) -> None:
    """Forward-mode derivatives, which would be dropped without a word."""
    for a in args:
        if isinstance(a, torch.Tensor) and forward_ad.unpack_dual(a).tangent is not None:
            refuse_forward_mode(name)


def refuse_forward_mode(name: str):
    raise c.UnsupportedError(
        f"{name}: a forward-mode derivative is asked for (jvp, jacfwd, hessian, dual numbers): specs have gradients in "
        "reverse mode alone, as by torch.autograd.grad, torch.func.grad, vjp and jacrev"
    )


def refuse_compiled_func(name: str):
    raise c.UnsupportedError(
        f"{name}: torch.func's gradients do not go through an operator of torch.library, as which a compiler sees it: "
        "leave torch.func.grad out of what is compiled, or take gradients by torch.autograd.grad"
    )


def refuse_second(name: str):
    raise c.UnsupportedError(
        f"{name}: a derivative of a gradient is asked for, which a spec does not have: a gradient that was made with "
        "create_graph=True is part of the loss, or grad of grad. Take the gradient without create_graph or detach() it "
        "where it is a constant; otherwise write this part in torch's own operations"
    )


class _Once(torch.autograd.Function):
    """A backward operator where torch.func looks on, which wants a function of this form."""

    @staticmethod
    def forward(name, operator, *args):
        return operator(*args)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.name = inputs[0]

    @staticmethod
    def backward(ctx, *seeds):
        refuse_second(ctx.name)

    @staticmethod
    def jvp(ctx, *tangents):
        refuse_forward_mode(ctx.name)

    @staticmethod
    def vmap(info, in_dims, name, operator, *args):
        return each_slice(lambda *slices: _Once.apply(name, operator, *slices), info, in_dims[2:], *args)


class Operators:
    def __init__(self, variant):
        self.variant = variant
        self.function = function = variant.function
        op = variant.op
        self.stem = f"{op.name}_{op.digest}_{function.layout.name}_{'_'.join(variant.results)}"
        self.n_tensors = len(function.names)
        required = {a.name for a in op.forward.tensors if not a.optional}
        types = {a.name: "float" if a.dtype == c.F32 else "SymInt" for a in op.forward.scalars}
        parameters = [f"Tensor{'' if n in required else '?'} {n}" for n in function.names]
        self.number_parameters = [f"{types[n]}? {n}" for n in function.numbers]
        schema = _schema(parameters + self.number_parameters, variant.results)
        self.forward, is_new = define(self.stem, schema, self._run, self._fake)
        self._forms: dict[tuple, tuple] = {}  # by what a call leaves out
        if is_new:
            differentiate(self.stem, op.name, self._run, self._backward, self._setup)

    def _given(self, args):
        """The form of a call of the operator, its tensors and numbers without what was left out."""
        absent = tuple([a is None for a in args])
        found = self._forms.get(absent)
        if found is None:
            there = [i for i, no in enumerate(absent) if not no]
            present = tuple(not no for no in absent)
            form = self.function.form(present[: self.n_tensors], present[self.n_tensors :])
            tensors, numbers = ([i for i in there if i < self.n_tensors], [i for i in there if i >= self.n_tensors])
            found = self._forms[absent] = (form, tensors, numbers)
        form, tensors, numbers = found
        return form, tuple([args[i] for i in tensors]), tuple([args[i] for i in numbers]) if numbers else ()

    def _run(self, *args):
        return _untraced(lambda: _answer(self.variant.run(*self._given(args))[0]))

    def _fake(self, *args):
        form, tensors, _ = self._given(args)
        work = self.variant.forward
        return _answer(work.fake(work.given(form.operands, form.scalars), tensors[: form.n_operands]))

    # ---- gradients --------------------------------------------------------------------------------------------

    def _setup(self, ctx, inputs, output):
        ctx.form, tensors, ctx.numbers = self._given(inputs)
        self.function.check_gradients(ctx.form.names, tensors)  # a recorded program may be called with other ones
        results = output if isinstance(output, (tuple, list)) else (output,)
        self.variant.kept(ctx.form).save(ctx, tensors, results)
        ctx.set_materialize_grads(False)

    def _backward(self, ctx, *seeds):
        needs = ctx.needs_input_grad
        if all(s is None for s in seeds):
            return (None,) * len(needs)
        gradients, form = self.variant.gradients, ctx.form
        wanted = gradients.wanted_of(self.function.names, needs)
        route = gradients.route(form, self.variant.results, seeds)
        made = self.backward(form, wanted, route, ctx, ctx.numbers, seeds)
        dtypes = dict(zip(form.names, ctx.dtypes))
        by_name = {n[1:]: gradient.to(dtypes[n[1:]]) for n, gradient in zip(wanted, made)}
        return (*(by_name.get(n) for n in self.function.names), *(None,) * len(self.function.numbers))

    def backward(self, form, wanted: tuple[str, ...], route, ctx, numbers, seeds):
        """The gradients that are wanted, by an operator."""
        kept, names = ctx.saved_tensors, self.function
        operands = [None] * len(self.variant.gradients.signature.tensors)
        for place, tensor in zip(route.places, route.operands(kept, ctx.results, seeds)):
            operands[place] = tensor
        of_tensors = {n: kept[i] for n, i in zip(form.learned, route.learned)}
        of_numbers = dict(zip(form.numbers, numbers))
        learned = [of_tensors.get(n) for n in names.learned]
        numbers = [of_numbers.get(n) for n in names.numbers]
        operator = self._backward_operator(wanted)
        if _interpreters() is None:
            results = operator(*operands, *learned, *numbers)
        else:
            results = _Once.apply(self.variant.op.name, operator, *operands, *learned, *numbers)
        return results if isinstance(results, (tuple, list)) else (results,)

    def _backward_operator(self, wanted: tuple[str, ...]):
        gradients, function = self.variant.gradients, self.function
        work = gradients.pass_of(wanted)
        tensors = gradients.signature.tensors
        scalars = [a.name for a in gradients.signature.scalars]
        n = len(tensors)

        def given(args):
            there = [(a.name, t) for a, t in zip(tensors, args) if t is not None]
            values = dict(zip(function.learned + function.numbers, args[n:]))
            names = tuple(m for m in scalars if values.get(m) is not None)
            return work.given(tuple(m for m, _ in there), names), [t for _, t in there], [values[m] for m in names]

        def run(*args):
            found, operands, values = given(args)
            numbers = [number_of(a.name, a.dtype, v, exact=True) for a, v in zip(found.scalars, values)]
            return _untraced(lambda: _answer(work.run(found, operands, numbers)[0]))

        def fake(*args):
            return _answer(work.fake(*given(args)[:2]))

        parameters = [f"Tensor{'?' if a.optional else ''} {a.name}" for a in tensors]
        parameters += [f"Tensor? {m}" for m in function.learned] + self.number_parameters
        name = f"{self.stem}_backward_{'_'.join(wanted)}"
        overload, is_new = define(name, _schema(parameters, wanted), run, fake)
        if is_new:
            title = self.variant.op.name
            differentiate(name, title, run, lambda ctx, *seeds: refuse_second(title), None)
        return overload


def _schema(parameters, results) -> str:
    return f"({', '.join(parameters)}) -> ({', '.join(['Tensor'] * len(results))})"


def _untraced(run):
    """To torch.jit.trace a call is one operator: nothing inside of it is recorded, where sizes would be tensors."""
    state = _trace()
    if state is None:
        return run()
    torch._C._set_tracing_state(None)
    try:
        return run()
    finally:
        torch._C._set_tracing_state(state)


def _answer(results):
    return results[0] if len(results) == 1 else tuple(results)
