"""Lathe: GPU kernels from short specs.

    import lathe
    op = lathe.load("causal")                    # a shipped spec, or a file
    o = op(q, k, v)                              # torch, CuPy, JAX arrays on a GPU; NumPy on the host device
    op.check()                                   # is it sound? proofs on random data, without a GPU

`lathe.torch` has autograd, torch.compile and optimizers; `lathe.jax` the same for JAX.
"""

from ._arrays import Shaped
from ._kernel import Context, set_context
from ._library import (
    VERSION as __version__,
    ArgumentError,
    CacheError,
    CompileError,
    CudaError,
    LatheError,
    OutOfMemoryError,
    SpecError,
    UnsupportedError,
)
from ._op import Op, Proof, Report, compile, load

__all__ = [
    "ArgumentError",
    "CacheError",
    "CompileError",
    "Context",
    "CudaError",
    "LatheError",
    "Op",
    "OutOfMemoryError",
    "Proof",
    "Report",
    "Shaped",
    "SpecError",
    "UnsupportedError",
    "__version__",
    "compile",
    "load",
    "set_context",
]
