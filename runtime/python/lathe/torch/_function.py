"""Specs as functions of torch tensors, with gradients: eager, under torch.compile, with autocast and checkpoints.

Eager calls of plain tensors take `torch.autograd.Function`, which costs little; whatever watches operators (a
compiler, a mode, functorch, a subclass of Tensor) sees an operator of torch.library instead. Both run one `Pass`.
"""

from __future__ import annotations

import torch
from torch.autograd import forward_ad

from .. import _library as c
from .._copies import Shared
from .._numbers import number_of
from .._op import Op, as_op
from .._signature import named_arguments, refuse_lists, unknown, why_absent
from .._watched import say_unusual
from ._gradients import Functional, Gradients, Kept, apply_eager, values_of
from ._passes import Layout, Pass
from ._register import PLAIN, Operators, refuse_tangents

_is_compiling = torch.compiler.is_compiling
_is_grad_enabled = torch.is_grad_enabled
_any_autocast = torch._C._is_any_autocast_enabled
_modes = torch._C._len_torch_dispatch_stack
_interpreters = torch._C._functorch.peek_interpreter_stack
_trace = torch._C._get_tracing_state  # of torch.jit.trace
_FUNCTIONALIZE = torch._C._functorch.TransformType.Functionalize


class Form:
    """Which arguments of a function a call has: tensors, scalars with a gradient, which are tensors too, numbers."""

    __slots__ = ("names", "operands", "n_operands", "learned", "numbers", "scalars", "dtypes", "sources",
                 "refused")  # fmt: skip

    def __init__(self, function: "Function", present: tuple[bool, ...], numbers: tuple[bool, ...]):
        names = tuple(n for n, there in zip(function.names, present) if there)
        self.names = names
        self.operands = tuple(n for n in names if n not in function.learned)
        self.n_operands = len(self.operands)
        self.learned = names[self.n_operands :]
        self.numbers = tuple(n for n, there in zip(function.numbers, numbers) if there)
        self.scalars = tuple(a.name for a in function.op.forward.scalars if a.name in self.learned + self.numbers)
        self.dtypes = tuple(function.op.forward.by_name[n].dtype for n in self.scalars)
        self.sources = tuple(
            (True, self.learned.index(n)) if n in self.learned else (False, self.numbers.index(n))
            for n in self.scalars
        )
        self.refused = [n for n in names if n not in function.has_gradient]


class Function(Shared):
    """A spec as a differentiable function of torch tensors: see `wrap`."""

    def __init__(self, op: Op, layout: str, results: tuple[str, ...]):
        refuse_lists(op)
        self.op = op
        self.layout = Layout(layout, op)
        self._asked = results
        self.of_parts = bool({"part_o", "part_rows"} & set(results))  # o is not made beside them, nor are gradients
        self.has_gradient = {a.name for a in op.forward.arguments if "d" + a.name in op.gradient.by_name}
        self.has_gradient = set() if self.of_parts else self.has_gradient
        self._name_arguments(op)
        own, wanted = self._name_results(op, results)
        self.wanted = results or own
        kept = {a.name for a in op.gradient.tensors}  # what the backward pass reads is made, asked for or not
        with_kept = tuple(r.name for r in op.forward.results if r.name in wanted or r.name in kept)
        self.plain = Variant(self, wanted)
        self.training = Variant(self, with_kept) if self.has_gradient else self.plain
        casts = op.kind in ("attention", "linear_attention")
        self._cast = {a.name for a in op.forward.tensors if a.shares_dtype and casts}
        self.__doc__ = self._describe()

    def _name_arguments(self, op: Op) -> None:
        forward = op.forward
        self.tensors = tuple(a.name for a in forward.tensors)
        # Scalars with a gradient come as tensors of one element in host memory, or as numbers.
        self.learned = tuple(a.name for a in forward.scalars if a.name in self.has_gradient)
        self.numbers = tuple(a.name for a in forward.scalars if a.name not in self.learned)
        self.names = self.tensors + self.learned
        self.positional = forward.positional
        self._forms: dict[tuple, Form] = {}
        # The usual call: every tensor that must be there, by position, and nothing else.
        self._usual = Form(self, tuple(n in self.positional for n in self.names), (False,) * len(self.numbers))
        is_whole = self._usual.names == self.positional and self.layout.name != "thd"  # which needs cu_q
        self._n_usual = len(self.positional) if is_whole else -1

    def _name_results(self, op: Op, results: tuple[str, ...]):
        by_name = op.forward.by_name
        for name in results:
            if name not in by_name or by_name[name].role != c.RESULT:
                known = ", ".join(r.name for r in op.forward.results)
                why = why_absent(op, name)
                raise c.ArgumentError(f"results: {op.name} has no result '{name}'{why and ': ' + why}; it has {known}")
        if self.of_parts:
            own = ()
        else:
            own = op.forward.results_by_default()
            own = () if results and all(r.optional and not r.alias for r in op.forward.results) else own
        return own, tuple(r.name for r in op.forward.results if r.name in own or r.name in results)

    def __reduce__(self):
        return _again, (self.op, self.layout.name, self._asked)

    def __repr__(self) -> str:
        return f"<lathe.torch.Function {self.op.name}({', '.join(self.names)}) -> {', '.join(self.wanted)}>"

    def _describe(self) -> str:
        op = self.op
        lines = [f"{op.name}: {op.kind}, layout {self.layout.name}.", ""]
        lines += [f"    {self._told(a)}" for a in op.arguments if a.role != c.RESULT]
        lines += ["", "Returns " + ", ".join(self._told(op.forward.by_name[n]) for n in self.wanted) + "."]
        return "\n".join(lines)

    def _told(self, argument) -> str:
        """With its shape as this layout has it."""
        return str(argument).replace(argument.shape_text, self.layout.shape_text(argument))

    def form(self, present: tuple[bool, ...], numbers: tuple[bool, ...]) -> Form:
        found = self._forms.get((present, numbers))
        if found is None:
            self.layout.need_starts([n for n, there in zip(self.names, present) if there])
            found = self._forms[present, numbers] = Form(self, present, numbers)
        return found

    def __call__(self, *args, **named):
        if _is_compiling() or _trace() is not None:
            return self._traced(*self._bind(args, named))
        if not named and len(args) == self._n_usual:
            form, tensors, numbers = self._usual, args, ()
        else:
            tensors, numbers = self._bind(args, named)
            form = self.form(tuple(t is not None for t in tensors), tuple(n is not None for n in numbers))
            tensors = tuple(t for t in tensors if t is not None)
            numbers = tuple(n for n in numbers if n is not None)
        needs = rounds = False
        for t in tensors:
            if type(t) not in PLAIN:
                return self._traced(*self._expand(form, tensors, numbers))
            if t.requires_grad:
                needs = True
                rounds = rounds or t.dtype.itemsize == 1
        if _any_autocast():
            tensors = self.autocast(form.names, tensors)
        if forward_ad._current_level >= 0 and _interpreters() is None:
            refuse_tangents(self.op.name, tensors)
        if _interpreters() is not None:
            if _interpreters().key() == _FUNCTIONALIZE:  # has no rule for functions of autograd
                return self._traced(*self._expand(form, tensors, numbers))
            self.check_gradients(form.names, tensors)
            return self.training.pick(Functional.apply(self.training, form, numbers, *tensors))
        if _modes() or not tensors:
            return self._traced(*self._expand(form, tensors, numbers))
        if needs and _is_grad_enabled():
            if form.refused or rounds:
                self.check_gradients(form.names, tensors)
            return apply_eager((self.training, form, numbers), *tensors)
        return self.plain.pick(self.plain.run(form, tensors, numbers)[0])

    # ---- arguments ---------------------------------------------------------------------------------------------

    def _bind(self, args, named):
        """Everything that the function takes, None where it is left out."""
        given = named_arguments(self.op.name, self.positional, args, named, self._check_known)
        tensors = tuple(self._tensor(n, given.get(n)) for n in self.names)
        return tensors, tuple(self._scalar(n, given.get(n)) for n in self.numbers)

    def _scalar(self, name: str, value):
        """Of a scalar without a gradient."""
        if value is None or type(value) is torch.SymInt:
            return value
        if isinstance(value, torch.Tensor) and value.requires_grad and _is_grad_enabled():
            self._refuse_gradient(name)
        return number_of(name, self.op.forward.by_name[name].dtype, value, exact=True)

    def _tensor(self, name: str, value):
        """A number for a scalar that has a gradient becomes a tensor of one element."""
        if value is None:
            return None
        if isinstance(value, torch.Tensor):
            return value.reshape(()) if name in self.learned and value.dim() and value.numel() == 1 else value
        if name in self.tensors:
            raise c.ArgumentError(f"argument '{name}': expected a tensor of torch, given {type(value).__name__}")
        return torch.tensor(number_of(name, c.F32, value, exact=True), dtype=torch.float64)

    def _expand(self, form: Form, tensors, numbers):
        for name, t in zip(form.names, tensors):
            self._tensor(name, t)
            say_unusual(name, t)
        of_tensors, of_numbers = dict(zip(form.names, tensors)), dict(zip(form.numbers, numbers))
        return tuple(of_tensors.get(n) for n in self.names), tuple(of_numbers.get(n) for n in self.numbers)

    def _check_known(self, name: str) -> None:
        if name in self.names or name in self.numbers:
            return
        by_name = self.op.forward.by_name
        if name in by_name and by_name[name].role == c.RESULT:
            raise c.ArgumentError(
                f"argument '{name}': a result; lathe.torch.wrap(op, results=({name!r},)) makes a function that has it"
            )
        raise unknown(self.op, self.names + self.numbers, name)

    def autocast(self, names, tensors):
        """As torch's own attention: operands of the main dtype are cast to what autocast names, but not of 8 bits."""
        kind = next((t.device.type for t in tensors if t is not None), "cpu")
        if not self._cast or not torch.is_autocast_enabled(kind):
            return tensors
        dtype = torch.get_autocast_dtype(kind)
        return tuple(
            t.to(dtype)
            if n in self._cast and t is not None and t.dtype not in (dtype, torch.float64) and t.dtype.itemsize > 1
            else t
            for n, t in zip(names, tensors)
        )

    def check_gradients(self, names, tensors) -> None:
        for name, t in zip(names, tensors):
            if name not in self.has_gradient and t is not None and t.requires_grad:
                self._refuse_gradient(name)
            if t is not None and t.requires_grad and t.dtype.itemsize == 1:
                raise c.ArgumentError(
                    f"argument '{name}': requires a gradient, and torch would round it to {t.dtype}; .detach() it, or "
                    f"call op.backward of Lathe, whose d{name} has the dtype of q"
                )
            if name in ("state_index", "states_index") and t is not None:
                what = "a pool of states has" if name == "state_index" else "states behind tokens have"
                raise c.ArgumentError(f"argument '{name}': {what} no backward pass; call it under torch.no_grad()")

    def _refuse_gradient(self, name: str):
        if self.of_parts:
            raise c.ArgumentError(f"argument '{name}': requires a gradient, and parts of rows have none; .detach() it")
        raise c.ArgumentError(
            f"argument '{name}': requires a gradient, and {self.op.name} has none for it; an input is declared with "
            "{ grad = true } for one, or call .detach()"
        )

    # ---- where something watches ---------------------------------------------------------------------------------

    def _traced(self, tensors, numbers):
        tensors = self.autocast(self.names, tensors)
        learns = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)
        if learns:
            self.check_gradients(self.names, tensors)
        # torch.jit.trace runs a program a second time, without gradients, and compares what it has recorded.
        variant = self.training if learns or _trace() is not None else self.plain
        return variant.pick(variant.operator(*tensors, *numbers))


class Variant:
    """A function with the results that its forward pass makes."""

    def __init__(self, function: Function, results: tuple[str, ...]):
        self.function = function
        self.op = op = function.op
        self.results = results
        self.forward = Pass(op, c.FORWARD, function.layout, results)
        self._forms: dict[Form, tuple] = {}
        self._kept: dict[Form, Kept] = {}
        self.chosen = tuple(results.index(n) for n in function.wanted)
        self.chosen_names = function.wanted
        self.only_one = self.chosen[0] if len(self.chosen) == 1 else None
        self.gradients = Gradients(self) if function.has_gradient else None
        self.operators = Operators(self)
        self.operator = self.operators.forward

    def pick(self, results):
        """What the caller wants of all results."""
        if self.only_one is not None:
            return results if isinstance(results, torch.Tensor) else results[self.only_one]
        return tuple(results[i] for i in self.chosen)

    def kept(self, form: Form) -> "Kept":
        found = self._kept.get(form)
        if found is None:
            found = self._kept[form] = Kept(self, form)
        return found

    def run(self, form: Form, tensors, numbers):
        """All results, and the plan that has made them."""
        given = self._forms.get(form)
        if given is None:
            given = self._forms[form] = self.forward.given(form.operands, form.scalars)
        if not form.scalars:
            return self.forward.run(given, tensors, ())
        n = form.n_operands
        exact = any(t.dtype is torch.float64 for t in tensors[:n])
        return self.forward.run(given, tensors[:n], values_of(form, tensors[n:], numbers, exact))


def wrap(op: Op | str, *, layout: str = "bhsd", results: str | tuple[str, ...] = ()) -> Function:
    """A spec as a function of torch tensors, with gradients.

        attend = lathe.torch.wrap("causal")                       # an Op, what lathe.load takes, or a text
        o = attend(q, k, v)                                       # q, k, v [b, h, s, d]
        attend = lathe.torch.wrap("causal", layout="bshd", results=("o", "lse"))

    Required tensors go by position, everything by name. layout is that of q, k, v and o: "bhsd", "bshd", or "thd" for
    packed sequences (with cu_q=, or cu= of linear attention); inputs over heads and tokens, such as gates, have their
    tokens first as well, finals have not. Nothing is copied for it, and no operand is overwritten. results: what a call
    returns, by name and in this order; by default what the spec always makes, or the first of floats.

    Works under torch.compile (make the function outside of what is compiled), CUDA graphs, autocast, checkpoints, DDP
    and vmap (one call after the other). CPU tensors run on the host device, in double precision and slowly.
    """
    op = as_op(op)
    results = (results,) if isinstance(results, str) else tuple(results)
    key = f"torch {layout} {','.join(results)}"
    found = op._extensions.get(key)
    if found is None:
        found = op._extensions[key] = Function(op, layout, results)
    return found


def _again(op: Op, layout: str, results: tuple[str, ...]) -> Function:
    return wrap(op, layout=layout, results=results)


def call(op: Op, *args, **named):
    """`wrap(op)(...)`."""
    return wrap(op)(*args, **named)
