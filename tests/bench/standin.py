"""standin.py: as much of torch as the benchmark uses, on NumPy, so that compare.py can be tested without a GPU.

bfloat16 is float16 here, "cuda" is the host, events are the host's clock, and the peers compute what they would.
install() puts it in the place of torch.
"""

import math
import sys
import time
import types

import numpy as np

bfloat16, float16, float32, float64 = (np.dtype(n) for n in ("float16", "float16", "float32", "float64"))
int32, int64, uint8 = (np.dtype(n) for n in ("int32", "int64", "uint8"))


def raw(x):
    return x.a if isinstance(x, Tensor) else x


def unpack(key):
    return tuple(map(raw, key)) if isinstance(key, tuple) else raw(key)


class Tensor:
    def __init__(self, a):
        self.a = np.asarray(a)

    shape = property(lambda t: t.a.shape)
    dtype = property(lambda t: t.a.dtype)
    nbytes = property(lambda t: t.a.nbytes)
    ndim = property(lambda t: t.a.ndim)
    T = property(lambda t: Tensor(t.a.T))
    device = "host"

    def data_ptr(self):
        return self.a.ctypes.data

    def stride(self):
        return tuple(s // self.a.itemsize for s in self.a.strides)

    def is_floating_point(self):
        return self.a.dtype.kind == "f"

    def __getitem__(self, key):
        return Tensor(self.a[unpack(key)])

    def __float__(self):
        return float(self.a)

    def __int__(self):
        return int(self.a)

    def double(self):
        return Tensor(self.a.astype(np.float64))

    def to(self, where):
        return self if isinstance(where, str) else Tensor(self.a.astype(where))

    def expand(self, *shape):
        return Tensor(np.broadcast_to(self.a, shape))

    def reshape(self, *shape):
        return Tensor(self.a.reshape(shape))

    def transpose(self, one, other):
        return Tensor(self.a.swapaxes(one, other))

    def contiguous(self):
        return Tensor(np.ascontiguousarray(self.a))

    def masked_fill(self, mask, value):
        return Tensor(np.where(raw(mask), self.a.dtype.type(value), self.a))

    def detach(self):
        return self

    def clone(self):
        return Tensor(self.a.copy())

    def requires_grad_(self, _):
        return self

    def fill_(self, value):
        self.a[...] = value
        return self

    def copy_(self, other):
        self.a[...] = other.a
        return self

    def clamp(self, min=None, max=None):
        return Tensor(np.clip(self.a, min, max))

    def abs(self):
        return Tensor(np.abs(self.a))

    def float(self):
        return Tensor(self.a.astype(np.float32))

    def flip(self, axis):
        return Tensor(np.flip(self.a, axis))

    def cumsum(self, axis):
        return Tensor(self.a.cumsum(axis))

    def sum(self, axis=None, keepdim=False):
        return Tensor(self.a.sum(axis=axis, keepdims=keepdim))

    def mean(self, axis, keepdim=False):
        return Tensor(self.a.mean(axis=axis, keepdims=keepdim))

    def norm(self):
        return Tensor(np.linalg.norm(self.a.astype(np.float64)))


def _operators():
    import operator
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "matmul", "and", "or", "lt", "le", "gt", "ge", "eq", "ne"):
        function = getattr(operator, f"__{name}__")
        setattr(Tensor, f"__{name}__", lambda a, b, f=function: Tensor(f(a.a, raw(b))))
        setattr(Tensor, f"__r{name}__", lambda a, b, f=function: Tensor(f(raw(b), a.a)))
    Tensor.__neg__ = lambda a: Tensor(-a.a)
    Tensor.__invert__ = lambda a: Tensor(~a.a)


_operators()
_random = np.random.default_rng(0)


def manual_seed(seed):
    global _random
    _random = np.random.default_rng(seed)


class Generator:
    def manual_seed(self, seed):
        self.random = np.random.default_rng(seed)
        return self


def randint(low, high, shape, generator=None):
    return Tensor(generator.random.integers(low, high, shape))


def randn(*shape, dtype=float32, device=None):
    return Tensor(_random.standard_normal(shape).astype(dtype))


def empty(*shape, dtype=float32, device=None):
    return Tensor(np.empty(shape, dtype))


def arange(*span, device=None):
    return Tensor(np.arange(*span))


def log_softmax(t, axis):
    return Tensor(t.a - logsumexp(t, axis).a[..., None] if axis == -1 else t.a - logsumexp(t, axis).a[..., None, :])


def logsumexp(t, axis):
    x = t.a.astype(np.float64)
    m = x.max(axis=axis, keepdims=True)
    return Tensor((m + np.log(np.exp(x - m).sum(axis=axis, keepdims=True))).squeeze(axis))


def logcumsumexp(t, axis):
    return Tensor(np.logaddexp.accumulate(t.a, axis))


def gather(t, axis, index):
    return Tensor(np.take_along_axis(t.a, index.a, axis))


def cummax(t, axis):
    return Tensor(np.maximum.accumulate(t.a, axis)), None


def index_select(t, axis, index):
    return Tensor(np.take(t.a, index.a, axis))


def stack(parts):
    return Tensor(np.stack([p.a for p in parts]))


def equal(a, b):
    return np.array_equal(a.a, b.a)


def full(shape, value, dtype=float32, device=None):
    return Tensor(np.full(shape, value, dtype))


def tensor(value, dtype=None, device=None):
    return Tensor(np.array(value, dtype))


def empty_like(t):
    return Tensor(np.empty_like(t.a))


def zeros_like(t):
    return Tensor(np.zeros_like(t.a))


def full_like(t, value):
    return Tensor(np.full_like(t.a, value))


def cat(parts):
    return Tensor(np.concatenate([p.a for p in parts]))


def where(c, a, b):
    return Tensor(np.where(raw(c), raw(a), raw(b)))


def softmax(t, axis):
    x = t.a.astype(np.float64)
    with np.errstate(invalid="ignore"):
        e = np.exp(x - x.max(axis=axis, keepdims=True))
    return Tensor((e / e.sum(axis=axis, keepdims=True)).astype(t.a.dtype))


def exp(t):
    return Tensor(np.exp(t.a))


def log(t):
    return Tensor(np.log(t.a))


def exp2(t):
    return Tensor(np.exp2(t.a))


def log2(t):
    return Tensor(np.log2(t.a))


def tanh(t):
    return Tensor(np.tanh(t.a))


def rsqrt(t):
    return Tensor(1.0 / np.sqrt(t.a))


def sigmoid(t):
    return Tensor(1.0 / (1.0 + np.exp(-t.a)))


class no_grad:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False


def compile(function, dynamic=None):  # noqa: A001: torch calls it so
    return function


# ---- peers: what they compute, not how fast -------------------------------------------------------------

def _attend(q, k, v, score_mod=None, mask=None, enable_gqa=False):
    b, h, n, d = q.shape
    out = np.empty((b, h, n, v.shape[3]), q.a.dtype)
    rows, keys = Tensor(np.arange(n)[:, None]), Tensor(np.arange(k.shape[2])[None, :])
    for i in range(b):
        for j in range(h):
            of = j // (h // k.shape[1])
            assert of == j or enable_gqa
            s = Tensor(q.a[i, j].astype(np.float64) @ k.a[i, of].astype(np.float64).T / math.sqrt(d))
            bi, hj = Tensor(np.array(i)), Tensor(np.array(j))
            s = score_mod(s, bi, hj, rows, keys) if score_mod else s
            s = s.masked_fill(~mask(bi, hj, rows, keys), -math.inf) if mask else s
            out[i, j] = softmax(s, -1).a @ v.a[i, of].astype(np.float64)
    return Tensor(out)


def _remember(out, *graph):
    out.graph = graph
    return out


def _attention_gradients(do, q, k, v, score_mod, mask, learned):
    """Closed formulas; the score mod by differences. Of what it learns: zeros."""
    b, h, n, d = q.shape
    grads = [np.zeros(t.shape) for t in (q, k, v)]
    rows, keys = Tensor(np.arange(n)[:, None]), Tensor(np.arange(k.shape[2])[None, :])
    for i in range(b):
        for j in range(h):
            of = j // (h // k.shape[1])
            q1, k1, v1, do1 = (t.astype(np.float64) for t in (q.a[i, j], k.a[i, of], v.a[i, of], do.a[i, j]))
            at = (Tensor(np.array(i)), Tensor(np.array(j)), rows, keys)
            mod = (lambda s: score_mod(Tensor(s), *at).a) if score_mod else (lambda s: s)  # noqa: B023
            raw = q1 @ k1.T / math.sqrt(d)
            s = np.where(mask(*at).a, mod(raw), -math.inf) if mask else mod(raw)
            p = softmax(Tensor(s), -1).a
            dp = do1 @ v1.T
            ds = p * (dp - (p * dp).sum(-1, keepdims=True)) * (mod(raw + 1e-4) - mod(raw - 1e-4)) / 2e-4 / math.sqrt(d)
            grads[0][i, j] += ds @ k1
            grads[1][i, of] += ds.T @ q1
            grads[2][i, of] += p.T @ do1
    return [Tensor(g) for g in grads] + [zeros_like(t) for t in learned]


def _grad(out, leaves, upstream, retain_graph):
    if isinstance(out, list):
        return [zeros_like(t) for t in leaves]
    kind, *graph = out.graph
    if kind == "attention":
        return _attention_gradients(upstream, *graph, leaves[3:])
    if kind == "tokens first":
        heads_first = Tensor(_swap(upstream if upstream.ndim == 4 else upstream[None]))
        gradients = _attention_gradients(heads_first, *graph, [])
        return [Tensor(_swap(g).reshape(t.shape)) for g, t in zip(gradients, leaves)]
    return [zeros_like(t) for t in leaves]  # of rows: nobody compares them


def scaled_dot_product_attention(q, k, v, is_causal=False, enable_gqa=False):
    if _backend == "FLASH_ATTENTION" and q.shape[3] != v.shape[3]:
        raise RuntimeError("No available kernel.")  # as torch says it
    mask = (lambda b, h, i, j: i >= j) if is_causal else None
    return _remember(_attend(q, k, v, mask=mask, enable_gqa=enable_gqa), "attention", q, k, v, None, mask)


def flex_attention(q, k, v, score_mod=None, block_mask=None, enable_gqa=False, kernel_options=None):
    if kernel_options == {"BACKEND": "FLASH"} and "flash_attn.cute.interface" not in sys.modules:
        raise RuntimeError("BACKEND='FLASH' but flash attention cannot be used")  # as torch says it
    return _remember(_attend(q, k, v, score_mod, block_mask, enable_gqa), "attention", q, k, v, score_mod, block_mask)


# ---- FlashAttention-4: tokens ahead of heads, sequences of a packed tensor as a mask, mods that may read tensors

def _swap(t):
    return raw(t).swapaxes(1, 2)


def _tokens_first(q, k, v, causal=False, softcap=0.0, window_size=(None, None), score_mod=None, score_mod_bwd=None,
                  aux_tensors=None, cu_seqlens_q=None, cu_seqlens_k=None, max_seqlen_q=None, max_seqlen_k=None):
    if q.shape[-1] != v.shape[-1]:
        raise AssertionError("head dims differ")
    assert (score_mod is None) == (score_mod_bwd is None)
    of = None
    if cu_seqlens_q is not None:
        of = np.searchsorted(cu_seqlens_q.a, np.arange(q.shape[0]), "right")
        assert max_seqlen_q == max_seqlen_k == np.diff(cu_seqlens_q.a).max() and cu_seqlens_k is cu_seqlens_q
    inner = [Tensor(_swap(t if t.ndim == 4 else t[None])) for t in (q, k, v)]

    def score(s, b, h, i, j):
        return score_mod(s, b, h, q_idx=i, kv_idx=j, seqlen_info=None, aux_tensors=aux_tensors)

    def mask(b, h, i, j):
        near = True if window_size[0] is None else i - j <= window_size[0]
        return (i >= j if causal else i == i) & near & (True if of is None else Tensor(of[i.a] == of[j.a]))
    mod = score if score_mod else (lambda s, *at: softcap * tanh(s / softcap)) if softcap else None
    out = _attend(*inner, mod, mask, enable_gqa=True)
    return _remember(Tensor(_swap(out).reshape(*q.shape[:-1], v.shape[-1])), "tokens first", *inner, mod, mask), None


def install_fa4():
    jit = lambda function: function  # noqa: E731
    math_of = types.SimpleNamespace(exp2=lambda t, fastmath: exp2(t), log2=lambda t, fastmath: log2(t))
    cute = _module("cutlass.cute", jit=jit, math=math_of, where=where, full_like=full_like)
    _module("cutlass", cute=cute, Float32=float32, Int32=int32)
    interface = _module("flash_attn.cute.interface", flash_attn_func=_tokens_first,
                        flash_attn_varlen_func=_tokens_first)
    utils = _module("flash_attn.cute.utils", scalar_to_ssa=lambda value, dtype: value)
    _module("flash_attn", cute=_module("flash_attn.cute", interface=interface, utils=utils))


_backend = None


class sdpa_kernel:
    def __init__(self, backend):
        global _backend
        _backend = backend

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False


class Event:
    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        self.at = time.perf_counter()

    def synchronize(self):
        pass

    def elapsed_time(self, other):
        return max((other.at - self.at) * 1e3, 1e-6)


def _module(name, **members):
    module = types.ModuleType(name)
    module.__dict__.update(members)
    sys.modules[name] = module
    return module


def install():
    here = {n: v for n, v in globals().items() if not n.startswith("_")}
    nothing = lambda *a, **k: None  # noqa: E731
    here["softmax"] = lambda t, axis: _remember(softmax(t, axis), "rows")
    norm = lambda t, w: Tensor(t.a.astype(np.float64) * raw(w).astype(np.float64))  # noqa: E731

    def rms_norm(x, shape, weight, eps):
        wide = x.double()
        return _remember(norm(wide * rsqrt((wide * wide).mean(-1, keepdim=True) + eps), weight), "rows")

    def layer_norm(x, shape, weight, bias, eps):
        wide = x.double()
        centred = wide - wide.mean(-1, keepdim=True)
        return _remember(norm(centred * rsqrt((centred * centred).mean(-1, keepdim=True) + eps), weight) + bias.double(), "rows")

    torch = _module("torch", **here)
    torch.__version__ = "stand-in"
    torch.version = types.SimpleNamespace(cuda="none")
    torch.backends = types.SimpleNamespace(cudnn=types.SimpleNamespace(version=lambda: "none"))
    torch.cuda = _module("torch.cuda", is_available=lambda: True, init=nothing, set_device=nothing, synchronize=nothing,
                         empty_cache=nothing, Event=Event, get_device_name=lambda i: "the host")
    torch.enable_grad = no_grad
    torch.autograd = _module("torch.autograd", grad=_grad)
    torch._dynamo = _module("torch._dynamo", reset=nothing)
    functional = _module("torch.nn.functional", scaled_dot_product_attention=scaled_dot_product_attention,
                         rms_norm=rms_norm, layer_norm=layer_norm)
    attention = _module("torch.nn.attention", sdpa_kernel=sdpa_kernel, SDPBackend=types.SimpleNamespace(
        FLASH_ATTENTION="FLASH_ATTENTION", CUDNN_ATTENTION="CUDNN_ATTENTION"))
    attention.flex_attention = _module("torch.nn.attention.flex_attention", flex_attention=flex_attention,
                                       create_block_mask=lambda mask, b, h, n, m, device: mask)
    torch.nn = _module("torch.nn", functional=functional, attention=attention)
