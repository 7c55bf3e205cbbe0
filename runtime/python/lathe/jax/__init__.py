"""Specs in JAX: functions with gradients, under jit, vmap and shard_map.

    import lathe, lathe.jax
    attend = lathe.jax.wrap("causal")                # or an Op of lathe.load, lathe.compile
    o = jax.jit(attend)(q, k, v)                     # jax.grad through it; q, k, v [b, h, s, d]
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from .. import _layout, _library as c
from .._numbers import I32_LEAST, I32_MOST, number_of
from .._op import Op, as_op
from .._signature import Argument, named_arguments, unknown
from ._launch import Pass, run

__all__ = ["Function", "wrap"]


class Function:
    """A spec as a function of JAX arrays: see `wrap`."""

    def __init__(self, op: Op, layout: str, results: tuple[str, ...]):
        _layout.check_layout(layout, op.name, op.kind)
        self.op, self.layout = op, layout
        forward, by_name = op.forward, op.forward.by_name
        for name in results:
            if name not in by_name or by_name[name].role != c.RESULT:
                known = ", ".join(r.name for r in forward.results)
                raise c.ArgumentError(f"results: {op.name} has no result '{name}'; it has {known}")
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
        given = self._bind(args, named)
        names = tuple(n for n in self.tensors if n in given)
        traced = tuple(n for n in self.scalars if isinstance(given.get(n), jax.Array))
        arrays = [self._array(n, given[n]) for n in names]
        exact = any(a.dtype == np.float64 for a in arrays)
        numbers = tuple(
            (n, number_of(n, self.op.forward.by_name[n].dtype, given[n], exact))
            for n in self.scalars if n in given and n not in traced
        )  # fmt: skip
        scalars = [_scalar(self.op.forward.by_name[n], given[n], exact) for n in traced]
        results = self._run(names, traced, numbers, arrays + scalars)
        picked = tuple(results[self.plain.index(n)] for n in self.wanted)
        return picked[0] if len(picked) == 1 else picked

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
            raise unknown(self.op.name, self.tensors + self.scalars, name)

    def _array(self, name: str, value: Any):
        argument = self.op.forward.by_name[name]
        if argument.dtype == c.I32:
            return _integers(name, value)
        array = jnp.asarray(value)
        numbers = array.dtype == jnp.int8 and argument.shares_dtype  # k and v of attention
        if jnp.issubdtype(array.dtype, jnp.integer) and argument.dtype != c.U8 and not numbers:
            raise c.ArgumentError(f"argument '{name}': expected dtype {argument.dtype_text}, given {array.dtype}")
        return array

    # ---- gradients ---------------------------------------------------------------------------------------------

    def _run(self, names, traced, numbers, arrays):
        try:
            return self._differentiable(names, traced, numbers)(*arrays)
        except TypeError as error:
            if "forward-mode" not in str(error):
                raise
        raise c.UnsupportedError(
            f"{self.op.name}: forward-mode derivatives (jax.jvp, jacfwd, linearize, hessian) are asked for, and Lathe "
            "has those of reverse mode alone: jax.grad, jax.vjp, jax.jacrev"
        )

    def _differentiable(self, names: tuple[str, ...], traced: tuple[str, ...], numbers: tuple):
        op, made, plain, layout = self.op, self.made, self.plain, self.layout
        every = names + traced

        @jax.custom_vjp
        def function(*arrays):
            return run(Pass(op, c.FORWARD, layout, names, plain, numbers, traced), arrays)

        def forward(*given):
            self._check_gradients(every, given)
            arrays = tuple(jnp.asarray(g.value) for g in given)
            results = run(Pass(op, c.FORWARD, layout, names, made, numbers, traced), arrays)
            return tuple(results[made.index(n)] for n in plain), (arrays, results)

        def backward(kept, seeds):
            arrays, results = kept
            have = dict(zip(every, arrays))
            gradients = self._gradients(have, dict(zip(made, results)), dict(zip(plain, seeds)), numbers)
            return tuple(_cotangent(gradients.get(n), a) for n, a in have.items())

        function.defvjp(forward, backward, symbolic_zeros=True)
        return function

    def _check_gradients(self, names, given) -> None:
        for name, g in zip(names, given):
            if g.perturbed and name not in self.has_gradient:
                raise c.ArgumentError(
                    f"argument '{name}': is differentiated, and {self.op.name} has no gradient for it; an input is "
                    f"declared with {{ grad = true }} for one, or jax.lax.stop_gradient({name}) says that it counts as "
                    "constant"
                )
            if name == "state_index":
                raise c.ArgumentError(
                    "argument 'state_index': a pool of states has no backward pass; call it outside of jax.grad"
                )

    def _gradients(self, have: dict, results: dict, seeds: dict, numbers) -> dict:
        """Gradients by the names of what they are of."""
        gradient = self.op.gradient
        order = tuple(r.name for r in gradient.results if r.name[1:] in have)
        read = have | results
        for name, seed in seeds.items():
            argument = gradient.by_name.get("d" + name)
            if argument is None:
                continue  # of a result that has no gradient, as indices
            if not isinstance(seed, SymbolicZero):
                read[argument.name] = seed
            elif not argument.optional or len(seeds) == 1:
                read[argument.name] = jnp.zeros(seed.shape, seed.dtype)
        names = tuple(a.name for a in gradient.tensors if a.name in read)
        known = {a.name for a in gradient.scalars}
        traced = tuple(n for n in self.scalars if n in have and n in known)
        constant = tuple(s for s in numbers if s[0] in known)
        work = Pass(self.op, c.BACKWARD, self.layout, names, order, constant, traced)
        out = run(work, [read[n] for n in names] + [have[n] for n in traced])
        return {name[1:]: g for name, g in zip(order, out)}


def _cotangent(gradient, array):
    """What has no gradient was not differentiated, or holds integers: `_check_gradients`."""
    if gradient is not None:
        return gradient.astype(array.dtype).reshape(array.shape)
    if jnp.issubdtype(array.dtype, jnp.floating):
        return jnp.zeros_like(array)
    return np.zeros(array.shape, jax.dtypes.float0)


# ---- integers and scalars ------------------------------------------------------------------------------------------


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


def wrap(op: Op | str, *, layout: str = "bhsd", results: tuple[str, ...] = ()) -> Function:
    """A spec as a function of JAX arrays, with gradients: `attend = lathe.jax.wrap("causal"); attend(q, k, v)`.
    op: an Op, what lathe.load takes, or the text of a spec.

    Required arrays go by position, everything by name. layout: where heads and tokens stand, "bhsd", "bshd", or "thd"
    for packed sequences (with cu_q=, or cu= in linear attention). It is that of q, k, v, o and of inputs with a dim of
    heads before their only one of tokens, as g [b, h, t]; others lie as declared. Nothing is copied for it.
    results: what a call returns, by name.

    A scalar that is a number is a constant of the compiled program; one that is a JAX array of one element may change
    from call to call, as a seed, and is read when the kernel is launched, for which a GPU waits. To differentiate what
    the spec declares without `grad = true` is refused, and so are forward-mode and second derivatives.
    """
    op = as_op(op)
    results = (results,) if isinstance(results, str) else tuple(results)
    key = f"jax {layout} {','.join(results)}"
    found = op._extensions.get(key)
    if found is None:
        found = op._extensions[key] = Function(op, layout, results)
    return found
