"""A spec as a function of JAX arrays: arguments, passes, gradients."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from .. import _layout, _library as c
from .._numbers import I32_LEAST, I32_MOST, number_of
from .._op import Op
from .._signature import Argument, Signature, named_arguments, refuse_lists, unknown, why_absent
from ._axes import alike, sharded_as
from ._launch import Pass, run


class Function:
    """A spec as a function of JAX arrays: see `wrap`."""

    axes: tuple = ()  # of a mesh, along which its calls are sharded

    def __init__(self, op: Op, layout: str, results: tuple[str, ...]):
        _layout.check_layout(layout, op.name, op.kind)
        refuse_lists(op)
        self.op, self.layout = op, layout
        forward, by_name = op.forward, op.forward.by_name
        for name in results:
            if name not in by_name or by_name[name].role != c.RESULT:
                known = ", ".join(r.name for r in forward.results)
                why = why_absent(op, name)
                raise c.ArgumentError(f"results: {op.name} has no result '{name}'{why and ': ' + why}; it has {known}")
        own = forward.results_by_default()
        self.wanted = results or own
        kept = {a.name for a in op.gradient.tensors}  # what the backward pass reads is made, asked for or not
        self.made = tuple(r.name for r in forward.results if r.name in self.wanted or r.name in kept)
        self.plain = tuple(r.name for r in forward.results if r.name in self.wanted)
        self.tensors = tuple(a.name for a in forward.tensors)
        self.scalars = tuple(a.name for a in forward.scalars)
        self.has_gradient = {a.name for a in forward.arguments if "d" + a.name in op.gradient.by_name}

    def __repr__(self) -> str:
        return f"<lathe.jax.Function {self.op.name}({', '.join(self.tensors)}) -> {', '.join(self.wanted)}>"

    def __call__(self, *args: Any, **named: Any):
        have, numbers = self._operands(self._bind(args, named), self.op.forward)
        results = self._run(have, numbers)
        picked = tuple(results[self.plain.index(n)] for n in self.wanted)
        return picked[0] if len(picked) == 1 else picked

    def _operands(self, given: dict, signature: Signature) -> tuple[dict, tuple]:
        """Arrays by their names, tensors first, and the numbers that are constants of the program."""
        have = {a.name: _array(a, given[a.name]) for a in signature.tensors if a.name in given}
        exact = any(a.dtype == np.float64 for a in have.values())
        scalars = [a for a in signature.scalars if a.name in given]
        traced = [a for a in scalars if isinstance(given[a.name], jax.Array)]
        numbers = tuple((a.name, number_of(a.name, a.dtype, given[a.name], exact)) for a in scalars if a not in traced)
        return have | {a.name: _scalar(a, given[a.name], exact) for a in traced}, numbers

    def _bind(self, args, named) -> dict[str, Any]:
        positional, by_name = self.op.forward.positional, self.op.forward.by_name
        given = named_arguments(self.op.name, positional, args, named, self._check_known)
        given = {n: v for n, v in given.items() if v is not None}
        missing = [n for n in positional if n not in given]
        if missing:
            raise c.ArgumentError(f"argument '{missing[0]}': missing; {by_name[missing[0]]}")
        _layout.need_starts(self.layout, by_name, given)
        return given

    def _check_known(self, name: str) -> None:
        by_name = self.op.forward.by_name
        if name in by_name and by_name[name].role == c.RESULT:
            raise c.ArgumentError(
                f"argument '{name}': a result; lathe.jax.wrap(op, results=({name!r},)) makes a function that has it"
            )
        if name not in self.tensors + self.scalars:
            raise unknown(self.op, self.tensors + self.scalars, name)

    # ---- parts of rows -----------------------------------------------------------------------------------------

    def parts(self, *args: Any, **named: Any):
        """What some of the keys are to the rows of attention: part_o [b, h, q, d_v] and part_rows, for `combine`."""
        if "part_o" not in self.op.forward.by_name:
            self.op._refuse_parts()
        given = self._bind(args, named)
        return self._constant(c.FORWARD, given, ("part_o", "part_rows"))

    def combine(self, part_o: Any, part_rows: Any, **named: Any):
        """Parts of rows put together: both of `parts`, stacked along a new first dim, in any order. Named are inputs
        that end a row, as a sink. The results of a call with all keys; o is f32.
        """
        made = self._constant(c.COMBINE, self._parts_given(part_o, part_rows, named), self.plain)
        picked = tuple(made[self.plain.index(n)] for n in self.wanted)
        return picked[0] if len(picked) == 1 else picked

    def merge(self, part_o: Any, part_rows: Any, **named: Any):
        """The same, but to a part: what `combine` and `merge` take as one, before all that ends a row."""
        return self._constant(c.COMBINE, self._parts_given(part_o, part_rows, named), ("merged_o", "merged_rows"))

    def _parts_given(self, part_o: Any, part_rows: Any, named: dict) -> dict:
        if not self.op.joining.arguments:
            self.op._refuse_parts()
        known = self.op.joining.tensors + self.op.joining.scalars
        for name in named:
            if name not in {a.name for a in known}:
                raise unknown(self.op, [a.name for a in known], name, which=c.COMBINE)
        return {"part_o": part_o, "part_rows": part_rows, **{n: v for n, v in named.items() if v is not None}}

    def _constant(self, which: int, given: dict, results: tuple[str, ...]) -> tuple:
        have, numbers = self._operands(given, (self.op.forward, self.op.gradient, self.op.joining)[which])

        @jax.custom_jvp
        def made(*arrays):
            return self._pass(which, dict(zip(have, arrays)), numbers, results)

        @made.defjvp
        def refuse(primals, tangents):
            raise c.UnsupportedError(
                f"{self.op.name}: parts of rows have no derivatives of their own; a function by lathe.jax.wrap(op, "
                "keys=AXIS) makes and combines them with gradients"
            )

        return made(*alike(have.values(), self.axes))

    # ---- gradients ---------------------------------------------------------------------------------------------

    def _run(self, have: dict, numbers: tuple) -> tuple:
        function, arrays = self._differentiable(tuple(have), numbers), alike(have.values(), self.axes)
        try:
            return function(*arrays)
        except NotImplementedError:  # by jax.shard_map, where it is not compiled
            return jax.jit(function)(*arrays)
        except TypeError as error:
            if "forward-mode" not in str(error):
                raise
        raise c.UnsupportedError(
            f"{self.op.name}: forward-mode derivatives (jax.jvp, jacfwd, linearize, hessian) are asked for, and Lathe "
            "has those of reverse mode alone: jax.grad, jax.vjp, jax.jacrev"
        )

    def _differentiable(self, every: tuple[str, ...], numbers: tuple):
        made, plain = self.made, self.plain

        @jax.custom_vjp
        def function(*arrays):
            return self._forward(dict(zip(every, arrays)), numbers, plain)

        def forward(*given):
            self._check_gradients(every, given)
            arrays = tuple(jnp.asarray(g.value) for g in given)
            results, more = self._forward_and_kept(dict(zip(every, arrays)), numbers, made)
            return tuple(results[made.index(n)] for n in plain), (arrays, results, more)

        def backward(kept, seeds):
            arrays, results, more = kept
            have = dict(zip(every, arrays))
            gradients = self._gradients(have, dict(zip(made, results)), dict(zip(plain, seeds)), numbers, more)
            return tuple(_cotangent(gradients.get(n), a) for n, a in have.items())

        function.defvjp(forward, backward, symbolic_zeros=True)
        return function

    def _forward(self, have: dict, numbers: tuple, results: tuple[str, ...]) -> tuple:
        return self._pass(c.FORWARD, have, numbers, results)

    def _forward_and_kept(self, have: dict, numbers: tuple, results: tuple[str, ...]) -> tuple:
        """Results, and what else a backward pass reads."""
        return self._forward(have, numbers, results), ()

    def _pass(self, which: int, have: dict, numbers: tuple, results: tuple[str, ...], dtypes: tuple = ()) -> tuple:
        """Results of a pass, of those arrays by their names and those numbers that it takes."""
        signature = (self.op.forward, self.op.gradient, self.op.joining)[which]
        names = tuple(a.name for a in signature.tensors if a.name in have)
        traced = tuple(a.name for a in signature.scalars if a.name in have)
        known = {a.name for a in signature.scalars}
        constant = tuple(s for s in numbers if s[0] in known)
        work = Pass(self.op, which, self.layout, names, results, constant, traced, dtypes)
        return run(work, [have[n] for n in names + traced])

    def _check_gradients(self, names, given) -> None:
        for name, g in zip(names, given):
            if g.perturbed and name not in self.has_gradient:
                raise c.ArgumentError(
                    f"argument '{name}': is differentiated, and {self.op.name} has no gradient for it; an input is "
                    f"declared with {{ grad = true }} for one, or jax.lax.stop_gradient({name}) says that it counts as "
                    "constant"
                )
            if g.perturbed and jnp.dtype(g.value.dtype).itemsize == 1:
                raise c.ArgumentError(
                    f"argument '{name}': is differentiated, and JAX would round its gradient to {g.value.dtype}; "
                    f"jax.lax.stop_gradient({name}) says that it counts as constant, or call op.backward of Lathe, "
                    f"whose d{name} has the dtype of q"
                )
            if name in ("state_index", "states_index"):
                what = "a pool of states has" if name == "state_index" else "states behind tokens have"
                raise c.ArgumentError(f"argument '{name}': {what} no backward pass; call it outside of jax.grad")

    def _gradients(self, have: dict, results: dict, seeds: dict, numbers, more) -> dict:
        """Gradients by the names of what they are of."""
        order = self._wanted(have)
        out = self._pass(c.BACKWARD, self._read_back(have, results, seeds), numbers, order)
        return {name[1:]: g for name, g in zip(order, out)}

    def _wanted(self, have: dict) -> tuple[str, ...]:
        """Of 8 bits none: `_check_gradients`."""
        return tuple(
            r.name for r in self.op.gradient.results if r.name[1:] in have and have[r.name[1:]].dtype.itemsize > 1
        )

    def _read_back(self, have: dict, results: dict, seeds: dict) -> dict:
        """What a backward pass reads: gradients of results beside them and the operands."""
        read = have | results
        for name, seed in seeds.items():
            argument = self.op.gradient.by_name.get("d" + name)
            if argument is None:
                continue  # of a result that has no gradient, as indices
            if not isinstance(seed, SymbolicZero):
                read[argument.name] = self._whole_seed(name, seed)
            elif not argument.optional or len(seeds) == 1:
                read[argument.name] = jnp.zeros(seed.shape, seed.dtype)
        return read

    def _whole_seed(self, result: str, seed):
        return seed


def _cotangent(gradient, array):
    """What has no gradient was not differentiated, or holds integers: `_check_gradients`."""
    if gradient is not None:
        return sharded_as(gradient.astype(array.dtype).reshape(array.shape), array)
    if jnp.issubdtype(array.dtype, jnp.floating):
        return jnp.zeros_like(array)
    return np.zeros(array.shape, jax.dtypes.float0)


# ---- integers and scalars ------------------------------------------------------------------------------------------


_ARRAYS = (jax.Array, np.ndarray, np.generic, list, tuple, int, float)


def _array(argument: Argument, value: Any):
    known = isinstance(value, _ARRAYS) or any(hasattr(value, n) for n in ("__jax_array__", "__array__", "__dlpack__"))
    if not known:  # as a sparse one, or a jax.Ref, which jax.numpy would take apart element by element
        raise c.ArgumentError(f"argument '{argument.name}': expected an array, given {type(value).__name__}")
    if argument.dtype == c.I32:
        return _integers(argument.name, value)
    array = jnp.asarray(value)
    if jnp.issubdtype(array.dtype, jax.dtypes.extended):  # as keys of random numbers
        raise c.ArgumentError(f"argument '{argument.name}': expected dtype {argument.dtype_text}, given {array.dtype}")
    numbers = array.dtype == jnp.int8 and argument.shares_dtype  # k and v of attention
    if jnp.issubdtype(array.dtype, jnp.integer) and argument.dtype != c.U8 and not numbers:
        raise c.ArgumentError(f"argument '{argument.name}': expected dtype {argument.dtype_text}, given {array.dtype}")
    return array


def _integers(name: str, value: Any):
    """An array of i32. NumPy's and lists are converted where their values fit; JAX's show no values while tracing."""
    if not isinstance(value, jax.Array):
        host = np.asarray(value)
        if host.dtype.kind not in "iu":
            raise c.ArgumentError(
                f"argument '{name}': expected dtype i32, given {host.dtype}; whole numbers are i32: "
                ".astype(numpy.int32)"
            )
        outside = host[(host < I32_LEAST) | (host > I32_MOST)]
        if outside.size:
            raise c.ArgumentError(
                f"argument '{name}': expected numbers from {I32_LEAST} to {I32_MOST} (i32), given "
                f"{outside.flat[0]} among them"
            )
        return jnp.asarray(host.astype(np.int32))
    if value.dtype != np.int32:
        fits = "where its values fit, " if jnp.issubdtype(value.dtype, jnp.integer) else "whole numbers are i32: "
        hint = f"; {fits}{name}.astype(jax.numpy.int32)" + " gives it" * fits.startswith("where")
        raise c.ArgumentError(f"argument '{name}': expected dtype i32, given {value.dtype}{hint}")
    return value


def _scalar(argument: Argument, value: jax.Array, exact: bool) -> jax.Array:
    """A scalar that is an array of the program: one element, which is read when the kernel is launched."""
    if math.prod(value.shape) != 1:
        raise c.ArgumentError(f"argument '{argument.name}': a scalar is an array of one element, given shape "
                              f"{list(value.shape)}")  # fmt: skip
    whole = jnp.issubdtype(value.dtype, jnp.integer) or value.dtype == bool
    if argument.dtype == c.I32:
        if not whole:
            raise c.ArgumentError(f"argument '{argument.name}': expected a whole number (i32), given {value.dtype}")
        return value if value.dtype.itemsize >= 4 else value.astype(jnp.int32)
    if not whole and not jnp.issubdtype(value.dtype, jnp.floating):
        raise c.ArgumentError(f"argument '{argument.name}': expected a number, given {value.dtype}")
    if value.dtype == np.float64 and not exact and not isinstance(value, jax.core.Tracer):
        number_of(argument.name, c.F32, value)  # which f32 may not hold
    return value.astype(jnp.float64 if exact else jnp.float32)
