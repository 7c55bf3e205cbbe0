"""torch's scaled_dot_product_attention and varlen_attn on kernels of Lathe: what is served, and what stays torch's."""

from __future__ import annotations

import contextlib
import math

import torch
import torch.nn.attention as attention
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode

from .. import _library as c
from ._forms import Form, function_of, op_of, serves, table_of
from ._register import PLAIN

_NAME = "scaled_dot_product_attention"
_FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
_CAUSAL, _ALL = (-1, 0), (-1, -1)
_MOST = 4096
_usual: dict = {}  # functions of calls without a mask and dropout that have been served
_interpreters = torch._C._functorch.peek_interpreter_stack
_is_permitted = torch.backends.cuda.flash_sdp_enabled  # sdpa_kernel([...]) says so for CPUs, too


def attend(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False):
    """What scaled_dot_product_attention gives, or None for a call that stays torch's own."""
    if attn_mask is None and dropout_p == 0.0 and type(q) in PLAIN and type(k) in PLAIN and type(v) in PLAIN:
        key = (q.shape, k.shape, v.shape, q.dtype, k.dtype, v.dtype, q.device, k.device, v.device, is_causal, scale,
               enable_gqa,
               torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad))  # fmt: skip
        function = _usual.get(key)
        if function is not None and _is_usual(q, k, v):
            try:
                return function(q, k, v)
            except c.UnsupportedError:
                return None
    else:
        key = None
    return _attend(key, q, k, v, attn_mask, dropout_p, is_causal, scale, enable_gqa)


def _is_usual(q, k, v) -> bool:
    """Of what may change between calls of one form."""
    if not _is_permitted() or forward_ad._current_level >= 0 or _interpreters() is not None:
        return False
    if torch.are_deterministic_algorithms_enabled():
        return False
    return not (q.is_nested or k.is_nested or v.is_nested) and q.layout is k.layout is v.layout is torch.strided


def _attend(key, q, k, v, attn_mask, dropout_p, is_causal, scale, enable_gqa):
    if attn_mask is not None and is_causal or not _is_permitted() or not _fits(q, k, v, enable_gqa):
        return None
    if forward_ad._current_level >= 0 or _interpreters() is not None:
        return None
    three = q.dim() == 3
    if three:
        q, k, v = q.unsqueeze(0), k.unsqueeze(0), v.unsqueeze(0)
    sizes = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    form = {"scale": _scale(scale), "window": _CAUSAL if is_causal else _ALL, "dropout": dropout_p > 0}
    given: dict = {"q_start": 0}  # torch aligns the first query with the first key
    if scale is not None and not math.isfinite(scale) or not _add_mask(form, given, attn_mask, q, sizes):
        return None
    if dropout_p > 0:
        if not _may_draw_seed(q, dropout_p):
            return None
        given["p"] = float(dropout_p)
        given["seed"] = int(torch.randint(0, 2**31 - 1, (), device="cpu"))
    form = Form(**form)
    if q.is_cuda and not _has_kernels(form, q, k, v, given.get("bias")):
        return None
    function = function_of(form)
    try:
        o = function(q, k, v, **given)
    except c.UnsupportedError:
        return None
    if key is not None and not three and (not is_causal or q.shape[2] == k.shape[2]) and _is_usual(q, k, v):
        if len(_usual) >= _MOST:
            _usual.clear()
        _usual[key] = function  # with the default of q_start, which is 0 where lengths are equal
    return o.squeeze(0) if three else o


def _scale(scale):
    return None if scale is None else float(scale)


def _fits(q, k, v, enable_gqa: bool) -> bool:
    """Dense operands of one dtype on one device, 3 or 4 dims, nothing empty, heads in groups of equal size."""
    for t in (q, k, v):
        if type(t) not in PLAIN and not _is_traced(t) or t.is_nested or t.layout is not torch.strided:
            return False
        if t.dtype != q.dtype or t.device != q.device or t.dim() != q.dim() or 0 in t.shape:
            return False
    if q.dtype not in _FLOATS or q.device.type not in ("cpu", "cuda") or q.dim() not in (3, 4):
        return False
    if k.shape[:-1] != v.shape[:-1] or q.shape[-1] != k.shape[-1] or q.dim() == 4 and q.shape[0] != k.shape[0]:
        return False
    return q.shape[-3] == k.shape[-3] or bool(enable_gqa) and q.shape[-3] % k.shape[-3] == 0


def _is_traced(t) -> bool:
    """A tensor of torch.compile, in whose graph our operator stands."""
    return isinstance(t, (FakeTensor, FunctionalTensor))


def _add_mask(form: dict, given: dict, mask, q, sizes) -> bool:
    if mask is None:
        return True
    is_bool = mask.dtype is torch.bool
    taken = (torch.float64,) if q.dtype is torch.float64 else (q.dtype, torch.float32)
    if not is_bool and mask.dtype not in taken:
        return False
    if type(mask) not in PLAIN and not _is_traced(mask) or mask.device != q.device or mask.layout is not torch.strided:
        return False
    found = table_of(mask, sizes)
    if found is None:
        return False
    name = "mask" if is_bool else "bias"
    form[name], given[name] = found
    form["learns_bias"] = mask.requires_grad
    return True


def _may_draw_seed(q, dropout_p) -> bool:
    """The seed is drawn on the host: a graph that is replayed would drop the same weights each time."""
    if type(q) not in PLAIN or not 0.0 <= dropout_p <= 1.0:
        return False
    return not (q.is_cuda and torch.cuda.is_current_stream_capturing())


def _has_kernels(form: Form, q, k, v, bias) -> bool:
    learns = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (q, k, v, bias))
    index = torch.cuda.current_device() if q.device.index is None else q.device.index
    heads, dims = (int(q.shape[1]), int(k.shape[1])), (int(q.shape[3]), int(v.shape[3]))
    of_bias = None if bias is None else bias.dtype
    return serves(form, index, q.dtype, heads, dims, of_bias, learns, torch.are_deterministic_algorithms_enabled())


# ---- packed sequences ----------------------------------------------------------------------------------------------


def _packed_form(q, k, v, is_causal: bool, scale, window) -> Form | None:
    window = (-1, 0) if is_causal else tuple(window or _ALL)
    if q.dim() != 3 or not _fits(q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1), True):
        return None
    form = Form(scale=_scale(scale), window=window)
    heads, dims = (q.shape[1], k.shape[1]), (q.shape[2], v.shape[2])
    if q.is_cuda and torch.are_deterministic_algorithms_enabled():  # ours take 1.9 times as long in one order
        return None
    if q.is_cuda and not serves(form, q.device.index, q.dtype, heads, dims, None, True):
        return None
    return form


def _packed(q, k, v, cu_q, cu_k, max_q, max_k, is_causal=False, scale=None, window_size=None):
    form = _packed_form(q, k, v, is_causal, scale, window_size)
    if form is None:
        return None
    o, lse = function_of(form, "thd", ("o", "lse"))(q.detach(), k.detach(), v.detach(), cu_q=cu_q, cu_kv=cu_k)
    return o, lse[0].float(), torch.zeros(2, dtype=torch.uint64, device=q.device)


def _packed_backward(do, q, k, v, o, lse, cu_q, cu_k, max_q, max_k, is_causal, rng_state, scale=None, window_size=None):
    form = _packed_form(q, k, v, is_causal, scale, window_size)
    if form is None:
        return None
    heads_first = lambda t: t.transpose(0, 1).unsqueeze(0)  # noqa: E731
    more = {"o": heads_first(o), "lse": lse.unsqueeze(0), "do": heads_first(do), "cu_q": cu_q, "cu_kv": cu_k}
    made = op_of(form).backward(heads_first(q), heads_first(k), heads_first(v), **more)
    return tuple(t[0].transpose(0, 1).to(q.dtype).contiguous() for t in made[:3])


# ---- where torch asks ----------------------------------------------------------------------------------------------


class _Overrides:
    """Operators of torch that ask us first. torch's registry keeps it, and calls `remove`."""

    def __init__(self):
        self._libraries = []
        self._put("aten", _NAME, attend, ("CPU", "AutogradCPU", "CUDA", "AutogradCUDA"))
        with contextlib.suppress(ImportError):  # which defines these two
            import torch.nn.attention.varlen  # noqa: F401

            for name, ours, n in (("_varlen_attn", _packed, 10), ("_varlen_attn_backward", _packed_backward, 14)):
                if len(getattr(torch.ops.torch_attn, name).default._schema.arguments) == n:
                    self._put("torch_attn", name, ours, ("CPU", "CUDA"))

    def _put(self, space: str, name: str, ours, keys) -> None:
        library = torch.library.Library(space, "IMPL")
        self._libraries.append(library)
        # All of torch's own first: what it has for autograd is another kernel once there is one of ours for the device.
        kernels = [(key, torch.library.get_kernel(f"{space}::{name}", key)) for key in keys]
        for key, kernel in kernels:
            library.impl(name, _asking(ours, kernel), key, with_keyset=True)

    def remove(self) -> None:
        for library in self._libraries:
            library._destroy()
        self._libraries.clear()


def _asking(ours, kernel):
    def ask(keyset, *args, **named):
        made = ours(*args, **named)
        return kernel.call_boxed(keyset, *args, **named) if made is None else made

    return ask


def _autocast(t):
    """As torch's own operator casts its operands, which come here before it."""
    if not isinstance(t, torch.Tensor) or not t.is_floating_point() or t.dtype is torch.float64:
        return t
    kind = t.device.type
    return t.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else t


class _Watching(TorchFunctionMode):
    """For a torch that does not give its own kernels out: calls of Python alone are seen."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is torch.nn.functional.scaled_dot_product_attention and not torch.compiler.is_compiling():
            names = {"query": "q", "key": "k", "value": "v"}
            made = attend(*map(_autocast, args), **{names.get(n, n): _autocast(value) for n, value in kwargs.items()})
            if made is not None:
                return made
        return func(*args, **kwargs)


def activate() -> None:
    """From here on, torch.nn.functional.scaled_dot_product_attention and varlen_attn run on kernels of Lathe.

    Under the name "lathe" in torch's registry; torch.nn.attention.restore_flash_attention_impl() ends it. What is not
    served stays torch's own: see the guide, "In torch's attention".
    """
    if not hasattr(attention, "register_flash_attention_impl") or not hasattr(torch.library, "get_kernel"):
        raise c.UnsupportedError(
            f"lathe.torch.activate: torch {torch.__version__} has no registry of attention (torch 2.11 has one); "
            "`with lathe.torch.sdpa():` does the same for a block of code"
        )
    attention.register_flash_attention_impl("lathe", register_fn=_Overrides)
    attention.activate_flash_attention_impl("lathe")


@contextlib.contextmanager
def sdpa():
    """The same as `activate` for one block of code; the backward pass of what ran in it may come later."""
    current = getattr(attention, "current_flash_attention_impl", lambda: None)
    if current() == "lathe":
        yield
    elif hasattr(torch.library, "get_kernel"):
        overrides = _Overrides()
        try:
            yield
        finally:
            overrides.remove()
    else:
        with _Watching():
            yield
