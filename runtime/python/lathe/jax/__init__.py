"""Specs in JAX: functions with gradients, under jit, vmap and shard_map.

    import lathe, lathe.jax
    attend = lathe.jax.wrap("causal")                # or an Op of lathe.load, lathe.compile
    o = jax.jit(attend)(q, k, v)                     # jax.grad through it; q, k, v [b, h, s, d]
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import _library as c
from .._arrays import HOST, dtype_code
from .._kernel import Call, Tensor, context_of
from .._op import Op, load
from .._signature import unknown
from ._handler import CallRecord, register

__all__ = ["Function", "wrap"]

_DTYPES = {c.F32: jnp.float32, c.F16: jnp.float16, c.BF16: jnp.bfloat16, c.F64: jnp.float64, c.I32: jnp.int32,
           c.U8: jnp.uint8}  # fmt: skip
_prepared: dict[tuple, "_Prepared"] = {}  # compiled programs hold their addresses: they live as long as the process
_lock = threading.Lock()


class _Prepared:
    """A kernel for operands of these shapes and dtypes, with the record that its calls carry."""

    def __init__(self, op: Op, which: int, forms: tuple, results: tuple[str, ...], scalars: tuple, device: int):
        signature = op.gradient if which else op.forward
        sizes, absent = signature.sizes({n: shape for n, _, shape in forms})
        dtypes = {n: code for n, code, _ in forms}
        self.made = []
        records = [Tensor(n, code, shape, None) for n, code, shape in forms]
        for name in results:
            argument = signature.by_name[name]
            shape = signature.result_shape(argument, sizes, absent)
            if shape is None:
                raise c.ArgumentError(f"{op.name}: the size of '{name}' does not follow from the arrays that are given")
            code = signature.result_dtype(argument, dtypes)
            records.append(Tensor(name, code, shape, None))
            self.made.append(jax.ShapeDtypeStruct(shape, _DTYPES[code]))
        exact = c.F64 in dtypes.values()
        kinds = [signature.by_name[n].dtype for n, _ in scalars]
        kinds = [c.F64 if exact and k == c.F32 else k for k in kinds]
        names = [(n, k) for (n, _), k in zip(scalars, kinds)]
        self.call = Call(context_of(device), op._handle, which, records, names, [0] * len(records))
        if self.call.workspace:
            self.made.append(jax.ShapeDtypeStruct((self.call.workspace,), jnp.uint8))
        self.records = self.call.take()
        for place, (_, value) in zip(self.records.scalars, scalars):
            place.value = value
        launch = ctypes.cast(c.lib.lathe_launch, ctypes.c_void_p).value
        self.record = CallRecord(launch, self.call.kernel, self.records.address, self.records.n, len(forms),
                                 len(results), int(bool(self.call.workspace)), int(device != HOST))  # fmt: skip
        self.n_results = len(results)

    def __call__(self, arrays):
        address = np.int64(ctypes.addressof(self.record))
        call = jax.ffi.ffi_call(register(), self.made, vmap_method="sequential")
        return call(*arrays, call=address)[: self.n_results]


def _device() -> int:
    if jax.default_backend() == "cpu":
        return HOST
    if len(jax.local_devices()) > 1:
        raise c.UnsupportedError("lathe.jax: expected one GPU in a process, given several; start a process for each "
                                 "(jax.distributed), with CUDA_VISIBLE_DEVICES")  # fmt: skip
    return 0


def _run(op: Op, which: int, arrays: dict, results: tuple[str, ...], scalars: tuple):
    """arrays: in the order of the signature."""
    forms = tuple((n, dtype_code(np.dtype(a.dtype), n), tuple(a.shape)) for n, a in arrays.items())
    key = (op, which, forms, results, scalars, _device())
    with _lock:
        found = _prepared.get(key)
        if found is None:
            found = _prepared[key] = _Prepared(*key)
    return found(tuple(arrays.values()))


class Function:
    """A spec as a function of JAX arrays: see `wrap`."""

    def __init__(self, op: Op, results: tuple[str, ...]):
        self.op = op
        by_name = op.forward.by_name
        for name in results:
            if name not in by_name or by_name[name].role != c.RESULT:
                raise c.ArgumentError(f"results: {op.name} has no result '{name}'")
        own = tuple(r.name for r in op.forward.results if not r.optional or r.alias)
        self.wanted = results or own
        kept = {a.name for a in op.gradient.tensors}
        self.made = tuple(r.name for r in op.forward.results if r.name in own + results or r.name in kept)
        self.plain = tuple(r.name for r in op.forward.results if r.name in own + results)
        self.tensors = tuple(a.name for a in op.forward.tensors)
        self.scalars = tuple(a.name for a in op.forward.scalars)

    def __call__(self, *args: Any, **named: Any):
        positional = self.op.forward.positional
        given = dict(zip(positional, args)) | named
        if len(args) > len(positional) or len(given) < len(args) + len(named):
            raise c.ArgumentError(f"{self.op.name}: expected each of {', '.join(positional)} once, by position or name")
        for name in given:
            if name not in self.tensors + self.scalars:
                raise unknown(self.op.name, self.tensors + self.scalars, name)
        missing = [n for n in positional if n not in given]
        if missing:
            raise c.ArgumentError(f"argument '{missing[0]}': missing; {self.op.forward.by_name[missing[0]]}")
        names = tuple(n for n in self.tensors if given.get(n) is not None)
        scalars = tuple((n, _number(n, given[n])) for n in self.scalars if given.get(n) is not None)
        results = self._differentiable(names, scalars)(*(jnp.asarray(given[n]) for n in names))
        picked = tuple(results[self.plain.index(n)] for n in self.wanted)
        return picked[0] if len(picked) == 1 else picked

    def _differentiable(self, names: tuple[str, ...], scalars: tuple):
        op, made, plain = self.op, self.made, self.plain
        gradient = op.gradient

        @jax.custom_vjp
        def function(*arrays):
            return tuple(_run(op, c.FORWARD, dict(zip(names, arrays)), plain, scalars))

        def forward(*arrays):
            results = tuple(_run(op, c.FORWARD, dict(zip(names, arrays)), made, scalars))
            return tuple(results[made.index(n)] for n in plain), (arrays, results)

        def backward(kept, seeds):
            arrays, results = kept
            have = dict(zip(names, arrays)) | dict(zip(made, results))
            have |= {"d" + n: s for n, s in zip(plain, seeds) if "d" + n in gradient.by_name}
            read = {a.name: have[a.name] for a in gradient.tensors if a.name in have}
            has = tuple(n for n in names if "d" + n in gradient.by_name)
            order = tuple(r.name for r in gradient.results if r.name[1:] in has)
            known = {a.name for a in gradient.scalars}
            if not order:
                raise c.ArgumentError(f"{op.name}: this spec has no gradients")
            out = _run(op, c.BACKWARD, read, order, tuple(s for s in scalars if s[0] in known))
            by_name = dict(zip(order, out))
            return tuple(_cotangent(op, n, by_name.get("d" + n), a) for n, a in zip(names, arrays))

        function.defvjp(forward, backward)
        return function


def _cotangent(op: Op, name: str, gradient, array):
    """Of an input that the spec gives no gradient: zero, as of what is constant."""
    if gradient is not None:
        return gradient.astype(array.dtype)
    if jnp.issubdtype(array.dtype, jnp.floating):
        return jnp.zeros_like(array)
    return np.zeros(array.shape, jax.dtypes.float0)


def _number(name: str, value: Any) -> float:
    if isinstance(value, jax.core.Tracer):
        raise c.ArgumentError(f"argument '{name}': a scalar is a constant of the compiled program, given a traced value; "
                              'declare it as tensor("f32", 1) in the spec')  # fmt: skip
    number = value.item() if hasattr(value, "item") else value
    return number if isinstance(number, int) else float(number)


def wrap(op: Op | str, *, results: tuple[str, ...] = ()) -> Function:
    """A spec as a function of JAX arrays, with gradients: `attend = lathe.jax.wrap("causal"); attend(q, k, v)`.

    Required arrays go by position, everything by name; scalars are constants of the compiled program. results: what a
    call returns, by name. vmap runs one call after the other: a batch goes faster as the batch that the spec has.
    An input that the spec declares without `grad = true` counts as constant.
    """
    op = load(op) if isinstance(op, str) else op
    key = f"jax {','.join(results)}"
    found = op._extensions.get(key)
    if found is None:
        found = op._extensions[key] = Function(op, tuple(results))
    return found
