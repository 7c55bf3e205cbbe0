"""lathe.py: the public API of Lathe from Python, through ctypes; only what the benchmarks need.

Tensors are torch tensors (on the GPU or the host) or NumPy arrays; nothing is copied. A torch tensor keeps its
own strides, so views work. Scalars are Python numbers: an int is passed as i32, a float as f32.

    ctx = lathe.Context("build/liblathe.so")
    run = ctx.call("causal", q=q, k=k, v=v, o=o, lse=lse)   # compiles or fetches the kernel
    run()                                                   # launches on the current torch stream
"""

import ctypes
import os

OK = 0
FORWARD = 0
BACKWARD = 1
DEVICE_AUTO = -2
DEVICE_HOST = -1
DTYPES = {"float32": 1, "float16": 2, "bfloat16": 3, "int32": 4, "uint8": 5, "float64": 6, "float8_e4m3fn": 7,
          "float8_e5m2": 8, "int8": 9}

_LOG = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)


class _Error(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int), ("line", ctypes.c_int), ("file", ctypes.c_char * 256),
                ("text", ctypes.c_char * 2048)]


class _Arg(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("data", ctypes.c_void_p), ("dtype", ctypes.c_int),
                ("ndim", ctypes.c_int32), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64))]


class _Options(ctypes.Structure):
    _fields_ = [("device", ctypes.c_int), ("cache_dir", ctypes.c_char_p), ("cache_bytes", ctypes.c_uint64),
                ("cache_read_only", ctypes.c_int), ("log", _LOG), ("log_user", ctypes.c_void_p),
                ("offline", ctypes.c_int), ("system_cache_dir", ctypes.c_char_p), ("deterministic", ctypes.c_int)]


class Error(RuntimeError):
    """A failure of the library: its one sentence."""


def _describe(name, value):
    """(address, dtype, shape, strides in elements, what must stay alive) of one argument."""
    if hasattr(value, "data_ptr"):  # torch
        dtype = DTYPES[str(value.dtype).rpartition(".")[2]]
        return value.data_ptr(), dtype, tuple(value.shape), tuple(value.stride()), value
    if hasattr(value, "__array_interface__"):  # NumPy
        strides = tuple(s // value.itemsize for s in value.strides)
        return value.ctypes.data, DTYPES[str(value.dtype)], tuple(value.shape), strides, value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"argument '{name}': expected a tensor or a number, given {type(value).__name__}")
    scalar = ctypes.c_int32(value) if isinstance(value, int) else ctypes.c_float(value)
    return ctypes.addressof(scalar), DTYPES["int32" if isinstance(value, int) else "float32"], (), (), scalar


class Arguments:
    """An array of lathe_arg that keeps alive what it points to."""

    def __init__(self, values):
        self.array = (_Arg * max(len(values), 1))()
        self.count = len(values)
        self.keep = []
        for record, (name, value) in zip(self.array, values.items()):
            address, dtype, shape, strides, owner = _describe(name, value)
            shape_array = (ctypes.c_int64 * max(len(shape), 1))(*shape)
            stride_array = (ctypes.c_int64 * max(len(strides), 1))(*strides)
            encoded = name.encode()
            record.name = encoded
            record.data = address
            record.dtype = dtype
            record.ndim = len(shape)
            record.shape = shape_array
            record.strides = stride_array
            self.keep += [owner, shape_array, stride_array, encoded]


def _declare(library):
    pointer = ctypes.c_void_p
    out = ctypes.POINTER(ctypes.c_void_p)
    error = ctypes.POINTER(_Error)
    args = ctypes.POINTER(_Arg)
    integer = ctypes.c_int
    table = {
        "lathe_version": (ctypes.c_char_p, []),
        "lathe_ctx_create": (integer, [out, ctypes.POINTER(_Options), error]),
        "lathe_ctx_destroy": (None, [pointer]),
        "lathe_ctx_device": (integer, [pointer]),
        "lathe_ctx_device_name": (ctypes.c_char_p, [pointer]),
        "lathe_spec_load": (integer, [out, ctypes.c_char_p, error]),
        "lathe_spec_parse": (integer, [out, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t, error]),
        "lathe_spec_destroy": (None, [pointer]),
        "lathe_kernel_get": (integer, [out, pointer, pointer, integer, args, integer, error]),
        "lathe_kernel_release": (None, [pointer]),
        "lathe_kernel_info": (ctypes.c_char_p, [pointer]),
        "lathe_workspace_size": (integer, [ctypes.POINTER(ctypes.c_size_t), pointer, args, integer, error]),
        "lathe_launch": (integer, [pointer, args, integer, pointer, pointer, error]),
    }
    for name, (result, parameters) in table.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = parameters


class Context:
    """One device with its cache, and the specs loaded so far."""

    def __init__(self, library, device=DEVICE_AUTO, cache_dir=None, deterministic=False):
        self.library = ctypes.CDLL(os.path.abspath(library))
        _declare(self.library)
        self.error = _Error()
        options = _Options(device, cache_dir.encode() if cache_dir is not None else None, 0, 0, _LOG(), None, 0, None,
                           int(deterministic))
        self.handle = ctypes.c_void_p()
        self.specs = {}
        self.check(self.library.lathe_ctx_create(ctypes.byref(self.handle), ctypes.byref(options),
                                                 ctypes.byref(self.error)))

    def check(self, status):
        if status != OK:
            place = f"{self.error.file.decode()}:{self.error.line}: " if self.error.file else ""
            raise Error(place + self.error.text.decode(errors="replace"))

    @property
    def device(self):
        return self.library.lathe_ctx_device(self.handle)

    @property
    def device_name(self):
        return self.library.lathe_ctx_device_name(self.handle).decode()

    def spec(self, name):
        """A shipped spec by name, or a spec file by its path."""
        if name not in self.specs:
            handle = ctypes.c_void_p()
            self.check(self.library.lathe_spec_load(ctypes.byref(handle), name.encode(), ctypes.byref(self.error)))
            self.specs[name] = handle
        return self.specs[name]

    def call(self, spec, backward=False, **values):
        return Call(self, spec, values, BACKWARD if backward else FORWARD)

    def close(self):
        for handle in self.specs.values():
            self.library.lathe_spec_destroy(handle)
        self.specs = {}
        self.library.lathe_ctx_destroy(self.handle)
        self.handle = None


class Call:
    """A kernel with its arguments and workspace: calling it launches, and does nothing else."""

    def __init__(self, ctx, spec, values, pass_):
        self.ctx = ctx
        self.args = Arguments(values)
        self.handle = ctypes.c_void_p()
        library, error = ctx.library, ctypes.byref(ctx.error)
        ctx.check(library.lathe_kernel_get(ctypes.byref(self.handle), ctx.handle, ctx.spec(spec), pass_,
                                           self.args.array, self.args.count, error))
        size = ctypes.c_size_t()
        ctx.check(library.lathe_workspace_size(ctypes.byref(size), self.handle, self.args.array, self.args.count,
                                               error))
        self.workspace_bytes = size.value
        self.workspace = self._allocate(size.value, values)
        self.workspace_address = self._workspace_address()
        self.info = library.lathe_kernel_info(self.handle).decode()
        self.launch = library.lathe_launch
        self.stream = self._current_stream()

    def _allocate(self, size, values):
        if size == 0:
            return None
        if self.ctx.device == DEVICE_HOST:
            return ctypes.create_string_buffer(size + 256)
        import torch
        on = next(v.device for v in values.values() if hasattr(v, "data_ptr"))
        return torch.empty(size, dtype=torch.uint8, device=on)  # torch aligns to 512 bytes

    def _workspace_address(self):
        if self.workspace is None:
            return None
        if hasattr(self.workspace, "data_ptr"):
            return self.workspace.data_ptr()
        return (ctypes.addressof(self.workspace) + 255) // 256 * 256

    def _current_stream(self):
        if self.ctx.device == DEVICE_HOST:
            return None
        import torch
        return torch.cuda.current_stream().cuda_stream

    def __call__(self):
        """Enqueue on the stream that was current when the call was made."""
        status = self.launch(self.handle, self.args.array, self.args.count, self.workspace_address, self.stream,
                             ctypes.byref(self.ctx.error))
        if status != OK:
            self.ctx.check(status)

    def close(self):
        self.ctx.library.lathe_kernel_release(self.handle)
        self.handle = None
