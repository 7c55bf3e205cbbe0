"""torch's scaled_dot_product_attention and varlen_attn through lathe.torch, against torch's own formula: results,
gradients, and what stays torch's. With LATHE_TEST_DEVICE=cuda, on a GPU."""

import os

import lathe
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
import lathe.torch  # noqa: E402
from lathe.torch import _forms, _sdpa  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention as attention  # noqa: E402

DEVICE = os.environ.get("LATHE_TEST_DEVICE", "cpu")
B, H, D = 2, 4, 32
SINGLE = 2e-5 if DEVICE == "cpu" else 2e-3
BOUNDS = {torch.float64: 1e-10, torch.float32: SINGLE, torch.float16: 4e-3, torch.bfloat16: 3e-2}
has_registry = pytest.mark.skipif(
    not hasattr(torch.nn.attention, "register_flash_attention_impl"), reason="this torch has no registry of attention"
)


def tensors(n_q=9, n_kv=9, h_kv=H, d_v=D, dtype=torch.float32):
    torch.manual_seed(5)
    shapes = (B, H, n_q, D), (B, h_kv, n_kv, D), (B, h_kv, n_kv, d_v)
    return [torch.randn(s, device=DEVICE).to(dtype).requires_grad_() for s in shapes]


@pytest.fixture
def calls(monkeypatch):
    """Counts calls that ours has answered."""
    answered = []
    real = _sdpa.attend

    def counting(*args, **named):
        o = real(*args, **named)
        answered.append(o is not None)
        return o

    monkeypatch.setattr(_sdpa, "attend", counting)
    return answered


def same(given, wanted, bound):
    torch.testing.assert_close(given, wanted, rtol=bound, atol=bound * max(1.0, float(wanted.detach().abs().max())))


def compare(calls, operands, learned=(), **named):
    every = [*operands, *learned]
    with lathe.torch.sdpa():
        o = attention(*operands, **named)
    assert calls == [True]
    do = torch.randn_like(o)
    made = torch.autograd.grad(o, every, do)
    with sdpa_kernel(SDPBackend.MATH):
        wanted = attention(*operands, **named)
    bound = BOUNDS[o.dtype]
    assert o.dtype == wanted.dtype and o.shape == wanted.shape
    same(o, wanted, bound)
    for one, other in zip(made, torch.autograd.grad(wanted, every, do)):
        assert one.dtype == other.dtype and one.shape == other.shape
        same(one, other, bound)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("lengths", [(9, 9), (5, 12), (12, 5), (1, 7)], ids=str)
def test_causal_counts_from_the_first_key(calls, lengths, dtype):
    compare(calls, tensors(*lengths, dtype=dtype), is_causal=True)


def test_all_keys_another_scale_grouped_heads_values_of_their_own_size(calls):
    compare(calls, tensors(7, 11, h_kv=2, d_v=16), scale=0.3, enable_gqa=True)


def test_double(calls):
    if DEVICE != "cpu":
        pytest.skip("f64 is the host device's")
    mask = torch.randn(9, 9, dtype=torch.float64, requires_grad=True)
    compare(calls, tensors(dtype=torch.float64), learned=[mask], attn_mask=mask)


SHAPES = [(9, 12), (B, 1, 1, 12), (B, H, 9, 12), (H, 9, 12), (1, 1, 9, 1), (1, 1), (12,)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", ["bool", "float", "learned"])
def test_masks(calls, shape, kind):
    torch.manual_seed(3)
    operands = tensors(9, 12, h_kv=2)
    values = torch.randn(shape, device=DEVICE)
    if kind == "bool":
        compare(calls, operands, attn_mask=values > -0.5, enable_gqa=True)
    elif kind == "float":
        compare(calls, operands, attn_mask=values.masked_fill(values < -0.8, -torch.inf), enable_gqa=True)
    else:
        mask = values.requires_grad_()
        compare(calls, operands, learned=[mask], attn_mask=mask, enable_gqa=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_float_masks_beside_bf16(calls, dtype):
    mask = torch.randn(B, 1, 9, 9, device=DEVICE).to(dtype).requires_grad_()
    compare(calls, tensors(dtype=torch.bfloat16), learned=[mask], attn_mask=mask)


def test_rows_without_a_key_are_zero(calls):
    mask = torch.ones(9, 9, dtype=torch.bool, device=DEVICE)
    mask[3] = False
    compare(calls, tensors(), attn_mask=mask)


def test_tensors_as_they_lie(calls):
    torch.manual_seed(2)
    packed = torch.randn(B, 9, 3, H, D, device=DEVICE, requires_grad=True)
    q, k, v = (t.transpose(1, 2) for t in packed.unbind(2))
    compare(calls, [q, k, v], is_causal=True)
    q = torch.randn(B, H, D, 9, device=DEVICE, requires_grad=True).transpose(2, 3)
    calls.clear()
    compare(calls, [q, k, v], attn_mask=torch.rand(9, 18, device=DEVICE)[:, ::2] > 0.4)


def test_three_dims(calls):
    q, k, v = (t[0].detach().requires_grad_() for t in tensors())
    compare(calls, [q, k, v], is_causal=True)


# ---- dropout -------------------------------------------------------------------------------------------------------


def test_dropout_drops_as_many_as_said_and_gradients_know_which(calls):
    n = 64
    q, k = (torch.zeros(B, H, n, D, device=DEVICE, requires_grad=True) for _ in range(2))
    v = torch.eye(n, device=DEVICE).expand(B, H, n, n).clone().requires_grad_()
    with lathe.torch.sdpa():
        torch.manual_seed(1)
        one = attention(q, k, v, dropout_p=0.25)
        other = attention(q, k, v, dropout_p=0.25)
        torch.manual_seed(1)
        again = attention(q, k, v, dropout_p=0.25)
        nothing = attention(q, k, v, dropout_p=1.0)
    assert calls == [True] * 4 and torch.equal(one, again) and not torch.equal(one, other)
    dropped = (one == 0).double().mean()
    assert abs(dropped - 0.25) < 4 * (0.25 * 0.75 / one.numel()) ** 0.5
    kept = one[one != 0]
    same(kept, torch.full_like(kept, 1 / n / 0.75), 1e-3)
    assert not nothing.any()
    do = torch.randn_like(one)
    (dv,) = torch.autograd.grad(one, v, do)
    same(dv, one.detach().transpose(2, 3) @ do, BOUNDS[torch.float32])


# ---- what stays torch's --------------------------------------------------------------------------------------------


def unserved():
    q, k, v = (t.detach() for t in tensors())
    yield "two dims", (q[0, 0], k[0, 0], v[0, 0]), {}
    yield "five dims", (q[None], k[None], v[None]), {}
    yield "one batch for all", (q, k[:1], v[:1]), {}
    yield "no query", (q[:, :, :0], k, v), {}
    if DEVICE == "cpu":  # where torch takes both
        yield "a mask beside is_causal", (q, k, v), {"attn_mask": torch.rand(9, 9) > 0.5, "is_causal": True}
    yield "a mask of five dims", (q, k, v), {"attn_mask": torch.ones(1, 1, 1, 9, 9, dtype=torch.bool, device=DEVICE)}


@pytest.mark.parametrize("name, operands, named", [pytest.param(*u, id=u[0]) for u in unserved()])
def test_what_is_not_served_stays_torchs(calls, name, operands, named):
    try:
        wanted = attention(*operands, **named)
    except RuntimeError:
        with lathe.torch.sdpa(), pytest.raises(RuntimeError):
            attention(*operands, **named)
        return
    with lathe.torch.sdpa():
        o = attention(*operands, **named)
    assert calls == [False] and torch.equal(o, wanted)


def test_other_backends_that_are_asked_for_and_functions_of_torch_stay_torchs(calls):
    q, k, v = tensors()
    with lathe.torch.sdpa(), sdpa_kernel(SDPBackend.MATH):
        attention(q, k, v)
        assert calls == [False]
    with lathe.torch.sdpa():
        batched = torch.vmap(attention)(q[None], k[None], v[None])
        dq = torch.func.grad(lambda x: attention(x, k, v).sum())(q)
    assert True not in calls
    same(dq, torch.autograd.grad(attention(q, k, v).sum(), q)[0], BOUNDS[torch.float32])
    same(batched[0], attention(q, k, v), BOUNDS[torch.float32])


def test_errors_are_torchs():
    q, k, v = tensors()
    with lathe.torch.sdpa(), pytest.raises(RuntimeError):
        attention(q, k[:, :2], v[:, :2])


# ---- how it is reached ---------------------------------------------------------------------------------------------


@has_registry
def test_activate_and_restore(calls):
    q, k, v = tensors()
    lathe.torch.activate()
    try:
        assert torch.nn.attention.current_flash_attention_impl() == "lathe"
        attention(q, k, v)
        with lathe.torch.sdpa():
            attention(q, k, v)
        with torch.inference_mode():
            attention(torch.ones(1, 1, 4, 16), torch.ones(1, 1, 4, 16), torch.ones(1, 1, 4, 16))
        layer = torch.nn.MultiheadAttention(D, 2, batch_first=True, device=DEVICE)
        layer(q[0], q[0], q[0], need_weights=False)
        assert calls == [True] * 4
    finally:
        torch.nn.attention.restore_flash_attention_impl()
    attention(q, k, v)
    assert len(calls) == 4


def test_older_torch(calls, monkeypatch):
    monkeypatch.delattr(torch.library, "get_kernel", raising=False)
    q, k, v = tensors()
    with lathe.torch.sdpa():
        o = attention(query=q, key=k, value=v, is_causal=True)
    assert calls == [True]
    same(o, attention(q, k, v, is_causal=True), BOUNDS[torch.float32])
    with pytest.raises(lathe.UnsupportedError, match="with lathe.torch.sdpa"):
        lathe.torch.activate()


def test_compiled(calls):
    q, k, v = tensors()
    torch._dynamo.reset()
    with lathe.torch.sdpa():
        o = torch.compile(lambda *t: attention(*t, is_causal=True), backend="aot_eager", fullgraph=True)(q, k, v)
        made = torch.autograd.grad(o.sum(), (q, k, v))
    wanted = attention(q, k, v, is_causal=True)
    assert True in calls
    for one, other in zip((o, *made), (wanted, *torch.autograd.grad(wanted.sum(), (q, k, v)))):
        same(one, other, BOUNDS[torch.float32])


def test_autocast(calls):
    q, k, v = tensors()
    with lathe.torch.sdpa(), torch.autocast(DEVICE, torch.bfloat16):
        o = attention(q, k, v)
    assert calls == [True] and o.dtype is torch.bfloat16
    same(o.float(), attention(q, k, v), BOUNDS[torch.bfloat16])


def test_autocast_where_calls_of_python_are_watched(calls):
    """Of a torch that does not give its own kernels out: operands of two dtypes are of one under autocast."""
    q, k, v = tensors()
    wanted = attention(q, k, v, is_causal=True)
    with _sdpa._Watching(), torch.autocast(DEVICE, torch.bfloat16):
        o = torch.nn.functional.scaled_dot_product_attention(q, k.bfloat16(), v, is_causal=True)
    assert calls == [True] and o.dtype is torch.bfloat16
    same(o.float(), wanted, BOUNDS[torch.bfloat16])


@pytest.mark.parametrize("window", [(-1, -1), (-1, 0), (3, 0), (2, 1)], ids=str)
def test_packed_sequences(window):
    varlen = pytest.importorskip("torch.nn.attention.varlen", reason="this torch has no varlen_attn")
    dtype = torch.float32 if DEVICE == "cpu" else torch.bfloat16
    torch.manual_seed(4)
    starts_q, starts_k = [0, 3, 10, 15], [0, 6, 13, 20]
    q, k, v = (torch.randn(n, h, D, device=DEVICE).to(dtype).requires_grad_() for n, h in ((15, H), (20, H), (20, H)))
    cu_q, cu_k = (torch.tensor(s, dtype=torch.int32, device=DEVICE) for s in (starts_q, starts_k))
    with lathe.torch.sdpa():
        request = varlen.AuxRequest(lse=True)
        o, lse = varlen.varlen_attn(q, k, v, cu_q, cu_k, 7, 7, window_size=window, return_aux=request, scale=0.2)
        do = torch.randn_like(o)
        made = torch.autograd.grad(o, (q, k, v), do)
    assert lse.shape == (H, 15)
    parts = []
    for a, b, x, y in zip(starts_q, starts_q[1:], starts_k, starts_k[1:]):
        rows = torch.arange(b - a, device=DEVICE)[:, None] + (y - x) - (b - a)  # ends meet, as in FlashAttention
        keys = torch.arange(y - x, device=DEVICE)[None]
        live = torch.ones(b - a, y - x, dtype=torch.bool, device=DEVICE)
        live &= (keys >= rows - window[0]) if window[0] >= 0 else live
        live &= (keys <= rows + window[1]) if window[1] >= 0 else live
        one = (t.transpose(0, 1)[None] for t in (q[a:b], k[x:y], v[x:y]))
        with sdpa_kernel(SDPBackend.MATH):
            parts.append(attention(*one, attn_mask=live, scale=0.2)[0].transpose(0, 1))
    wanted = torch.cat(parts)
    for one, other in zip((o, *made), (wanted, *torch.autograd.grad(wanted, (q, k, v), do))):
        same(one, other, BOUNDS[dtype])


def test_texts_are_without_warnings():
    """What a model is run on passes the checks of any spec."""
    for form in (
        _forms.Form(window=(-1, 0)),
        _forms.Form(mask=("b", "h", "q", "kv"), scale=0.5),
        _forms.Form(bias=("h", "q", "kv"), learns_bias=True),
        _forms.Form(window=(3, 2), dropout=True),
        _forms.Form(window=(31, 0), sink=True),
        _forms.Form(window=(-1, 0), softcap=30.0, bias=("q", "kv")),
    ):
        report = _forms.op_of(form).check()
        assert not [p for p in report if p.applies and (not p.passed or p.warned)], (form.text(), str(report))
