"""One pass of a spec as a call of XLA: kernels that are prepared for shapes and dtypes, and launched by the handler."""

from __future__ import annotations

import ctypes
import threading
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import _layout, _library as c
from .._arrays import HOST, compact, dtype_code
from .._kernel import Call, Tensor, context_of
from .._op import Op
from ._handler import HOLDS, CallRecord, ScalarRecord, driver_functions, register

_DTYPES = {c.F32: jnp.float32, c.F16: jnp.float16, c.BF16: jnp.bfloat16, c.F64: jnp.float64, c.I32: jnp.int32,
           c.U8: jnp.uint8, c.F8_E4M3: jnp.float8_e4m3fn, c.F8_E5M2: jnp.float8_e5m2, c.I8: jnp.int8}  # fmt: skip
_prepared: dict[tuple, "_Prepared"] = {}  # compiled programs hold their addresses: they live as long as the process
_lock = threading.Lock()


class Pass(NamedTuple):
    """What of a pass does not depend on its arrays."""

    op: Op
    which: int
    layout: str
    names: tuple[str, ...]  # of the tensors that are read, in the order of the signature
    results: tuple[str, ...]
    numbers: tuple  # (name, value) of scalars that are constants of the program
    scalars: tuple[str, ...]  # those that are arrays of it, behind the tensors

    @property
    def signature(self):
        return self.op.gradient if self.which else self.op.forward


class _Prepared:
    """A kernel for operands of these shapes and dtypes, with the record that its calls carry."""

    def __init__(self, work: Pass, forms: tuple, device: int):
        n = len(work.names)
        exact = any(dtype == np.float64 for dtype, _ in forms[:n])
        records = [self._given(work, name, *form) for name, form in zip(work.names, forms)]
        records += self._make_results(work, records)
        names = [(name, _kind(work, name, exact)) for name in (*dict(work.numbers), *work.scalars)]
        self.call = Call(context_of(device), work.op._handle, work.which, records, names, [0] * len(records))
        if self.call.workspace:
            self.made.append(jax.ShapeDtypeStruct((self.call.workspace,), jnp.uint8))
        self.records = self.call.take()
        for place, (_, value) in zip(self.records.scalars, work.numbers):
            place.value = value
        self.n_results = len(work.results)
        self._write_record(work, forms[n:], device)
        self.launch = self._refusing_derivatives(work.op)

    @staticmethod
    def _given(work: Pass, name: str, dtype, shape) -> Tensor:
        argument = work.signature.by_name[name]
        places = _layout.to_library(work.layout, work.op, argument, shape, compact(shape))
        return Tensor(name, dtype_code(np.dtype(dtype), name), *places)

    def _make_results(self, work: Pass, given: list[Tensor]):
        signature = work.signature
        shapes = {t.name: t.shape for t in given}
        sizes, absent = signature.sizes(shapes)
        dtypes = {t.name: t.dtype for t in given}
        self.made = []
        for name in work.results:
            argument = signature.by_name[name]
            shape = signature.result_shape(argument, shapes, sizes, absent)
            if shape is None:
                raise c.ArgumentError(f"{work.op.name}: the size of '{name}' does not follow from the arrays given")
            code = signature.result_dtype(argument, dtypes)
            user = _layout.to_user(work.layout, work.op, argument, shape)
            self.made.append(jax.ShapeDtypeStruct(user, _DTYPES[code]))
            yield Tensor(name, code, *_layout.to_library(work.layout, work.op, argument, user, compact(user)))

    def _write_record(self, work: Pass, scalar_forms, device: int) -> None:
        held = [ScalarRecord(name.encode(), HOLDS[np.dtype(dtype).name])
                for name, (dtype, _) in zip(work.scalars, scalar_forms)]  # fmt: skip
        self._scalars = (ScalarRecord * max(len(held), 1))(*held)
        on_gpu = device != HOST
        copy, wait = driver_functions() if on_gpu and held else (None, None)
        launch = ctypes.cast(c.lib.lathe_launch, ctypes.c_void_p).value
        self.record = CallRecord(launch, self.call.kernel, self.records.address, self.records.n, len(work.names),
                                 len(work.results), int(bool(self.call.workspace)), int(on_gpu), len(held),
                                 ctypes.addressof(self._scalars), copy, wait)  # fmt: skip

    def _call(self, *arrays):
        address = np.int64(ctypes.addressof(self.record))
        call = jax.ffi.ffi_call(register(), self.made, vmap_method="sequential")
        return tuple(call(*arrays, call=address)[: self.n_results])

    def _refusing_derivatives(self, op: Op):
        """Whoever differentiates a launch itself asks for what no kernel computes."""
        launch = jax.custom_jvp(self._call)

        @launch.defjvp
        def refuse(primals, tangents):
            raise c.UnsupportedError(
                f"{op.name}: a second derivative is asked for (jax.grad of jax.grad, jax.hessian), and gradients of "
                "Lathe have no gradients of their own; write that part in jax.numpy, or, where the first gradient "
                "counts as constant, take it at jax.lax.stop_gradient(x)"
            )

        return launch


def _kind(work: Pass, name: str, exact: bool) -> int:
    kind = work.signature.by_name[name].dtype
    return c.F64 if exact and kind == c.F32 else kind


def _device() -> int:
    if jax.default_backend() == "cpu":
        return HOST
    if len(jax.local_devices()) > 1:
        raise c.UnsupportedError("lathe.jax: expected one GPU in a process, given several; start a process for each "
                                 "(jax.distributed), with CUDA_VISIBLE_DEVICES")  # fmt: skip
    return 0


def run(work: Pass, arrays) -> tuple:
    """arrays: the tensors of `work.names`, then its scalars. The results, in their order."""
    arrays = [jnp.asarray(a) for a in arrays]
    forms = tuple((a.dtype, tuple(a.shape)) for a in arrays)
    device = _device()
    # As texts, numbers are told apart where == does not: 0.0 and -0.0; and NaN is found again.
    key = work._replace(numbers=tuple((name, repr(value)) for name, value in work.numbers)), forms, context_of(device)
    with _lock:
        found = _prepared.get(key)
        if found is None:
            found = _prepared[key] = _prepare(work, forms, device)
    return found.launch(*arrays)


def _prepare(work: Pass, forms: tuple, device: int) -> _Prepared:
    try:
        return _Prepared(work, forms, device)
    except c.ArgumentError as error:
        if work.layout == "bhsd" or "layout" in str(error):
            raise
        hint = f"{error} (shapes as [b, h, s, d]; the call has layout '{work.layout}')"
        raise c.ArgumentError(hint) from None
