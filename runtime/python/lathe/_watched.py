"""Tensors of torch and arrays of JAX that stand for something else: what is traced, transformed, sharded, ragged.

A call of `lathe.Op` reads numbers where they lie, and neither a recorder nor a derivative sees it; functions of
`lathe.torch` and `lathe.jax` are operators there.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from . import _library as c

_WRAP = "lathe.torch.wrap(op) makes a function that is an operator of torch"


def check_seen(name: str, tensor: Any) -> None:
    """Of an operand or result of `lathe.Op` that is a tensor of torch."""
    torch = sys.modules["torch"]
    inner = torch._C
    if inner._get_tracing_state() is not None or _is_recorded(inner):
        raise c.ArgumentError(f"argument '{name}': the program is being recorded (torch.jit.trace, make_fx, export), "
                              f"and a call of lathe.Op leaves nothing in a record; {_WRAP}")  # fmt: skip
    if inner._functorch.is_functorch_wrapped_tensor(tensor):
        raise c.ArgumentError(f"argument '{name}': a tensor of torch.func (vmap, grad, jvp and others), of which a "
                              f"call of lathe.Op knows nothing; {_WRAP}")  # fmt: skip
    forward_ad = torch.autograd.forward_ad
    if forward_ad._current_level >= 0 and forward_ad.unpack_dual(tensor).tangent is not None:
        raise c.ArgumentError(f"argument '{name}': has a forward-mode derivative, of which a call of lathe.Op "
                              "has none; torch.autograd.forward_ad.unpack_dual(x).primal is without it")  # fmt: skip
    if type(tensor) is not torch.Tensor:
        say_unusual(name, tensor)


def check_known(name: str, array: Any) -> None:
    """Of an array of JAX, whose numbers a program that is traced does not have."""
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(array, jax.core.Tracer):
        raise c.ArgumentError(f"argument '{name}': an array that JAX traces (jit, grad, vmap and others), of which a "
                              "call of lathe.Op knows nothing; lathe.jax.wrap(op) makes a function of it")  # fmt: skip


def apart_from_dynamo(function):
    """A function at which torch.compile breaks a graph, and which runs as it is."""
    disabled = None

    def apart(*args, **named):
        nonlocal disabled
        if disabled is None:
            if "torch._dynamo" not in sys.modules:
                return function(*args, **named)
            disabled = sys.modules["torch._dynamo"].disable(function)
        return disabled(*args, **named)

    apart._torchdynamo_disable = True
    apart._torchdynamo_disable_msg = f"a call of lathe.Op is no operator of torch; {_WRAP}"
    return functools.wraps(function)(apart)


def _is_recorded(inner) -> bool:
    keys = getattr(inner, "_TorchDispatchModeKey", None)
    return keys is not None and inner._get_dispatch_mode(keys.PROXY) is not None


def say_unusual(name: str, tensor) -> None:
    """Tensors that are no plain array of numbers, and what to give in their place."""
    torch = sys.modules["torch"]
    if tensor.is_nested:
        raise c.ArgumentError(
            f"argument '{name}': a nested tensor, which is not taken; make a function with layout='thd', and give "
            "values() of q, k and v, and cu_q=q.offsets() of a jagged one"
        )
    if tensor.layout is not torch.strided:
        raise c.ArgumentError(f"argument '{name}': expected a dense tensor, given one of {tensor.layout}; .to_dense()")
    distributed = sys.modules.get("torch.distributed.tensor")
    if distributed is not None and isinstance(tensor, distributed.DTensor):
        raise c.ArgumentError(
            f"argument '{name}': a DTensor, which is not taken; wrap the call in "
            "torch.distributed.tensor.experimental.local_map, with placements that shard batch or heads, or give "
            "to_local()"
        )
