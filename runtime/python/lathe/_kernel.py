"""Contexts of devices, and calls that are prepared once: a kernel with its records, of which a launch changes the
data pointers alone.
"""

from __future__ import annotations

import ctypes
import threading
from ctypes import byref, c_int64, c_size_t, c_void_p
from typing import Callable, Sequence

from . import _library as c
from ._arrays import HOST
from ._copies import Shared


class Context(Shared):
    """A device and its cache of kernels: `Context("cuda:0", deterministic=True)`.

    device: "host", "cuda:N", or "auto" (the first GPU, or the host). cache_dir: "" for no cache on disk.
    deterministic: True: backward kernels give the same bits from run to run. "batch": so do all, and what a sequence
    gets does not depend on what else is in the batch. offline: never compile.
    """

    def __init__(
        self,
        device: str = "auto",
        *,
        cache_dir: str | None = None,
        deterministic: bool | str = False,
        offline: bool = False,
    ):
        self._options = (device, cache_dir, deterministic, offline)
        options = c.Options()
        options.device = _ordinal(device)
        options.cache_dir = None if cache_dir is None else cache_dir.encode()
        options.deterministic = _determinism(deterministic)
        options.offline = int(offline)
        err = c.Error()
        handle = c_void_p()
        c.check(c.lib.lathe_ctx_create(byref(handle), byref(options), byref(err)), err)
        self.handle = handle
        self.deterministic = deterministic
        self.device: int = c.lib.lathe_ctx_device(handle)
        self.name: str = c.lib.lathe_ctx_device_name(handle).decode()
        self.arch: str = c.lib.lathe_ctx_arch(handle).decode()

    def __del__(self, destroy=c.lib.lathe_ctx_destroy):
        if getattr(self, "handle", None):
            destroy(self.handle)

    def need_support(self, spec, which: int, records: "Records") -> None:
        """Raises what the library refuses of such a call on this device."""
        err = c.Error()
        c.check(c.lib.lathe_supported(self.handle, spec, which, records.array, records.n, byref(err)), err)

    def __reduce__(self):
        return _context, self._options

    def __repr__(self) -> str:
        return f"<lathe.Context {self.name}>"


def _context(device: str, cache_dir: str | None, deterministic: bool | str, offline: bool) -> Context:
    return Context(device, cache_dir=cache_dir, deterministic=deterministic, offline=offline)


def _determinism(asked: bool | str) -> int:
    if asked == "batch":
        return c.BATCH_INVARIANT
    if asked not in (False, True):
        raise c.ArgumentError(f"deterministic: expected False, True or 'batch', given {asked!r}")
    return int(asked)


def _ordinal(device: str) -> int:
    if not isinstance(device, str):
        raise c.ArgumentError(f"device: expected 'auto', 'host' or 'cuda:N', given {device!r}")
    if device == "auto":
        return c.DEVICE_AUTO
    if device in ("host", "cpu"):
        return c.DEVICE_HOST
    if device == "cuda":
        return 0
    number = device.removeprefix("cuda:")
    if number == device or not number.isdigit():
        raise c.ArgumentError(f"device: expected 'auto', 'host' or 'cuda:N', given {device!r}")
    return int(number)


_contexts: dict[tuple[int, bool], Context] = {}
_forgetting: list[Callable[[], object]] = []
_lock = threading.Lock()


def context_of(device: int, deterministic: bool = False) -> Context:
    """The one that calls without a context of their own share: it lives as long as the program."""
    found = _contexts.get((device, deterministic))
    if found is None:
        with _lock:
            found = _contexts.get((device, deterministic))
            if found is None:
                name = "host" if device == HOST else f"cuda:{device}"
                found = _contexts[device, deterministic] = Context(name, deterministic=deterministic)
    return found


def forget_with_context(forget: Callable[[], object]) -> None:
    """To be called once there is another context: what was found out, or prepared, with the one before."""
    _forgetting.append(forget)


def need_context(context: Context) -> None:
    if not isinstance(context, Context):
        raise c.ArgumentError(f"context: expected a lathe.Context, as lathe.Context('host'), given {context!r}")


def set_context(context: Context) -> None:
    """Calls on this device use this context from now on, those of `lathe.torch` included."""
    need_context(context)
    _contexts[context.device, False] = context
    if context.deterministic:
        _contexts[context.device, True] = context
    for forget in list(_forgetting):
        forget()


_CTYPE_OF_SCALAR = {c.F32: ctypes.c_float, c.I32: ctypes.c_int32, c.F64: ctypes.c_double}


class Tensor:
    """A tensor in a call: everything but where it lies."""

    __slots__ = ("name", "dtype", "shape", "strides")

    def __init__(self, name: str, dtype: int, shape: Sequence[int], strides: Sequence[int] | None):
        self.name, self.dtype, self.shape, self.strides = name, dtype, shape, strides


class Records:
    """An array of `lathe_arg` for tensors and scalars, with the memory that it points to.

    `words` is the array as 64-bit words; pointer of tensor i is words[POINTER + i * c.ARG_WORDS].
    """

    POINTER = 1
    __slots__ = ("n", "array", "address", "words", "scalars", "_keep")

    def __init__(self, tensors: Sequence[Tensor], scalars: Sequence[tuple[str, int]]):
        self.n = len(tensors) + len(scalars)
        self.array = (c.Arg * max(self.n, 1))()
        self._keep: list = []
        for record, tensor in zip(self.array, tensors):
            record.name = tensor.name.encode()
            record.dtype = tensor.dtype
            record.ndim = len(tensor.shape)
            record.shape = self._numbers(tensor.shape)
            record.strides = None if tensor.strides is None else self._numbers(tensor.strides)
        self.scalars = []
        for record, (name, dtype) in zip(self.array[len(tensors) : self.n], scalars):
            value = _CTYPE_OF_SCALAR[dtype]()
            record.name = name.encode()
            record.dtype = dtype
            record.data = ctypes.addressof(value)
            self.scalars.append(value)
        self.address = ctypes.addressof(self.array)
        self.words = (c_int64 * (c.ARG_WORDS * max(self.n, 1))).from_buffer(self.array)

    def _numbers(self, values: Sequence[int]):
        array = (c_int64 * max(len(values), 1))(*values)
        self._keep.append(array)
        return ctypes.cast(array, ctypes.POINTER(c_int64))


class Call:
    """A kernel for tensors of these dtypes, shapes and strides, ready to be launched on others like them.

    Records are lent to one thread at a time: a launch takes a set from the pool, or makes one.
    """

    def __init__(self, context, spec, which: int, tensors, scalars, pointers: Sequence[int]):
        self.context = context
        self.spec = spec  # the kernel holds a reference of its own; this one is for messages
        self.tensors = tuple(tensors)
        self.scalars = tuple(scalars)
        self.on_host = context.device == HOST
        self.pool: list[Records] = []
        records = self.take()
        self._place(records, pointers)
        err = c.Error()
        kernel = c_void_p()
        get = c.lib.lathe_kernel_get
        c.check(get(byref(kernel), context.handle, spec, which, records.array, records.n, byref(err)), err)
        self.kernel = kernel.value
        size = c_size_t()
        c.check(c.lib.lathe_workspace_size(byref(size), kernel, records.array, records.n, byref(err)), err)
        self.workspace = size.value
        self.pool.append(records)
        self.err = err
        self._launch = c.lib.lathe_launch if self.on_host else c.quick.lathe_launch

    def __del__(self, release=c.lib.lathe_kernel_release):
        if getattr(self, "kernel", None):
            release(self.kernel)

    def take(self) -> Records:
        try:
            return self.pool.pop()
        except IndexError:
            return Records(self.tensors, self.scalars)

    @staticmethod
    def _place(records: Records, pointers: Sequence[int]) -> None:
        at = Records.POINTER
        words = records.words
        for pointer in pointers:
            words[at] = pointer
            at += c.ARG_WORDS

    @property
    def info(self) -> str:
        return c.lib.lathe_kernel_info(self.kernel).decode()

    def launch(self, pointers: Sequence[int], values: Sequence[float], workspace: int, stream: int) -> None:
        """Enqueue it; on the host device it is done when this returns. Raises what the library refuses."""
        try:
            records = self.pool.pop()
        except IndexError:
            records = Records(self.tensors, self.scalars)
        words = records.words
        at = 1
        for pointer in pointers:
            words[at] = pointer
            at += 5
        if values:
            for place, value in zip(records.scalars, values):
                place.value = value
        if self._launch(self.kernel, records.address, records.n, workspace, stream, None):
            self._explain(records, workspace, stream)
        self.pool.append(records)

    def _explain(self, records: Records, workspace: int, stream: int) -> None:
        """The sentence is asked for by a second call: the first one had no record for it."""
        err = c.Error()
        c.check(self._launch(self.kernel, records.address, records.n, workspace, stream, ctypes.addressof(err)), err)


assert c.ARG_WORDS == 5, "`Call.launch` steps by the words of a record"
