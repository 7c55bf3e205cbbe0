"""One pass of a spec as a call of XLA: kernels that are prepared for shapes and dtypes, and launched by the handler."""

from __future__ import annotations

import ctypes
import hashlib
import threading
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import _layout, _library as c
from .._arrays import HOST, compact, dtype_code
from .._kernel import Call, Tensor, context_of
from .._op import Op
from ._axes import alike, axes_of, varying
from ._handler import HOLDS, CallRecord, ScalarRecord, driver_functions, enter, register, tells_devices

_DTYPES = {c.F32: jnp.float32, c.F16: jnp.float16, c.BF16: jnp.bfloat16, c.F64: jnp.float64, c.I32: jnp.int32,
           c.U8: jnp.uint8, c.F8_E4M3: jnp.float8_e4m3fn, c.F8_E5M2: jnp.float8_e5m2, c.I8: jnp.int8}  # fmt: skip
_prepared: dict[tuple, "_Prepared"] = {}  # compiled programs find their records: they live as long as the process
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
    dtypes: tuple = ()  # (name, dtype) of results that may have one of several

    @property
    def signature(self):
        return (self.op.forward, self.op.gradient, self.op.joining)[self.which]


class _Prepared:
    """Kernels for operands of these shapes and dtypes, one for each device, with the record that their calls carry."""

    def __init__(self, work: Pass, forms: tuple, devices: dict[int, int]):
        n = len(work.names)
        exact = any(dtype == np.float64 for dtype, _ in forms[:n])
        records = [self._given(work, name, *form) for name, form in zip(work.names, forms)]
        records += self._make_results(work, records)
        names = [(name, _kind(work, name, exact)) for name in (*dict(work.numbers), *work.scalars)]
        forms_of_call = work.op._handle, work.which, records, names, [0] * len(records)
        self.calls = {ordinal: Call(context_of(device), *forms_of_call) for ordinal, device in devices.items()}
        workspace = max(call.workspace for call in self.calls.values())
        if workspace:
            self.made.append(jax.ShapeDtypeStruct((workspace,), jnp.uint8))
        self.records = next(iter(self.calls.values())).take()
        for place, (_, value) in zip(self.records.scalars, work.numbers):
            place.value = value
        self.n_results = len(work.results)
        self._write_record(work, forms[n:], workspace, HOST not in devices.values())
        self.name = self._name(work, forms)
        enter(self.name, self.record)
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
        self.kept = []  # places of results that a call may leave unwritten in part
        for name in work.results:
            argument = signature.by_name[name]
            shape = signature.result_shape(argument, shapes, sizes, absent)
            if shape is None:
                signature.need_operand(argument, sizes)
                raise c.ArgumentError(f"{work.op.name}: the size of '{name}' does not follow from the arrays given")
            asked = dict(work.dtypes).get(name)
            code = signature.result_dtype(argument, dtypes) if asked is None else dtype_code(np.dtype(asked), name)
            user = _layout.to_user(work.layout, work.op, argument, shape, "pages" in shapes)
            if argument.kept_by in shapes:
                self.kept.append(len(self.made))
            self.made.append(jax.ShapeDtypeStruct(user, _DTYPES[code]))
            yield Tensor(name, code, *_layout.to_library(work.layout, work.op, argument, user, compact(user)))

    def _write_record(self, work: Pass, scalar_forms, workspace: int, on_gpu: bool) -> None:
        held = [ScalarRecord(name.encode(), HOLDS[np.dtype(dtype).name])
                for name, (dtype, _) in zip(work.scalars, scalar_forms)]  # fmt: skip
        self._scalars = (ScalarRecord * max(len(held), 1))(*held)
        self.kernels = (ctypes.c_void_p * len(self.calls))(*(call.kernel for call in self.calls.values()))
        self._ordinals = (ctypes.c_int64 * len(self.calls))(*self.calls)
        copy, wait = driver_functions() if on_gpu and held else (None, None)
        launch = ctypes.cast(c.lib.lathe_launch, ctypes.c_void_p).value
        self.record = CallRecord(launch, ctypes.addressof(self.kernels), ctypes.addressof(self._ordinals),
                                 len(self.calls), self.records.address, self.records.n, len(work.names),
                                 len(work.results), int(bool(workspace)), int(on_gpu), len(held), len(self.kept),
                                 ctypes.addressof(self._scalars), copy, wait)  # fmt: skip

    def _name(self, work: Pass, forms: tuple) -> str:
        """Of the call in programs: the same in every process that prepares the same, on whichever of its GPUs."""
        contexts = [(n, call.on_host, call.context.deterministic) for n, call in self.calls.items()]
        text = repr((c.VERSION, work.op.digest, *work[1:], forms, contexts, self.made))
        return f"{work.op.name}_{hashlib.sha256(text.encode()).hexdigest()[:32]}"

    def zeros(self) -> list:
        """What lies in memory of results of which a call may leave elements as they are."""
        return [jnp.zeros(self.made[place].shape, self.made[place].dtype) for place in self.kept]

    def _call(self, *arrays):
        first = len(arrays) - len(self.kept)  # of those of `zeros`
        over = {first + i: place for i, place in enumerate(self.kept)}
        call = jax.ffi.ffi_call(register(), self.made, vmap_method="sequential", input_output_aliases=over)
        return tuple(call(*arrays, call=self.name)[: self.n_results])

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


def _devices() -> dict[int, int]:
    """What XLA's ordinals of this process's devices are to Lathe: the host, or a GPU of that number."""
    if jax.default_backend() == "cpu":
        return {0: HOST}
    ordinals = [d.local_hardware_id for d in jax.local_devices()]
    if len(ordinals) > 1 and not tells_devices():
        raise c.UnsupportedError("lathe.jax: expected one GPU in a process, given several, of which this jaxlib does "
                                 "not tell a kernel its own; take a newer one, or start a process for each GPU "
                                 "(jax.distributed), with CUDA_VISIBLE_DEVICES")  # fmt: skip
    return {n: n for n in ordinals} if len(ordinals) > 1 else {0: max(ordinals[0], 0)}  # -1: it is not said


def run(work: Pass, arrays) -> tuple:
    """arrays: the tensors of `work.names`, then its scalars. The results, in their order."""
    arrays = alike(arrays)
    for name, array in zip(work.names, arrays):
        if not all(isinstance(n, int) for n in array.shape):
            raise c.UnsupportedError(f"argument '{name}': expected sizes that are numbers, given {list(array.shape)}, "
                                     "as of jax.export; kernels are prepared for each shape")  # fmt: skip
    forms = tuple((a.dtype, tuple(a.shape)) for a in arrays)
    devices = _devices()
    # As texts, numbers are told apart where == does not: 0.0 and -0.0; and NaN is found again.
    key = work._replace(numbers=tuple((name, repr(value)) for name, value in work.numbers)), forms, tuple(
        (n, context_of(d)) for n, d in devices.items()
    )
    with _lock:
        found = _prepared.get(key)
        if found is None:
            found = _prepared[key] = _prepare(work, forms, devices)
    axes = axes_of(arrays[0]) if arrays else ()
    return tuple(varying(r, sorted(axes, key=str)) for r in found.launch(*alike([*arrays, *found.zeros()])))


def _prepare(work: Pass, forms: tuple, devices: dict[int, int]) -> _Prepared:
    try:
        return _Prepared(work, forms, devices)
    except c.ArgumentError as error:
        if work.layout == "bhsd" or "layout" in str(error):
            raise
        hint = f"{error} (shapes as [b, h, s, d]; the call has layout '{work.layout}')"
        raise c.ArgumentError(hint) from None
