"""lathe.torch with operands as models have them: gradients that autograd expands, int64 indices, inputs in bf16,
tensors without data or of other kinds; layouts; results by default and of parts."""

import lathe
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
import lathe.torch  # noqa: E402
from torch.nn import functional as F  # noqa: E402

DOUBLE = dict(dtype=torch.float64, requires_grad=True)


def same(given, wanted, error=1e-10):
    torch.testing.assert_close(given, wanted, rtol=error, atol=error)


def plain(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


@pytest.fixture
def qkv():
    torch.manual_seed(3)
    return [torch.randn(2, 2, 6, 8, **DOUBLE) for _ in range(3)]


# ---- strides ---------------------------------------------------------------------------------------------------------

SUMS = {
    "sum": lambda y: y.sum(),
    "sum of rows": lambda y: (y.sum(0) * torch.arange(8.0).double()).sum(),
    "einsum": lambda y: torch.einsum("ij,jk->", y, torch.ones(8, 3).double()),
    "transpose": lambda y: y.t().contiguous().cumsum(0).sum(),
    "conv1d": lambda y: F.conv1d(y.t()[None], torch.ones(2, 8, 1).double()).sum(),
    "every second": lambda y: y[:, ::2].sum(),
    "flipped": lambda y: y.flip(1)[:, :3].square().sum(),
}
ROWS = {
    "rms_norm": lambda x, w: F.rms_norm(x, (8,), w, 1e-6),
    "layer_norm": lambda x, w: F.layer_norm(x, (8,), w, torch.zeros(8).double(), 1e-6),
    "softmax": lambda x, w: torch.softmax(x, -1),
    "cumsum": lambda x, w: x.cumsum(-1),
    "log_softmax": lambda x, w: torch.log_softmax(x, -1),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("spec", ROWS)
def test_gradients_of_any_strides(spec, compiled):
    function = lathe.torch.wrap(spec)
    x, w = torch.randn(4, 8, **DOUBLE), torch.rand(8, **DOUBLE)
    more = {"rms_norm": dict(weight=w), "layer_norm": dict(weight=w, bias=torch.zeros(8).double())}.get(spec, {})
    for name, total in SUMS.items():
        torch._dynamo.reset()
        run = lambda x: total(function(x, **more))
        run = torch.compile(run, fullgraph=True, backend="aot_eager") if compiled and name in ("sum", "conv1d") else run
        (given,) = torch.autograd.grad(run(x), [x])
        (wanted,) = torch.autograd.grad(total(ROWS[spec](x, w)), [x])
        same(given, wanted)


def test_operands_of_any_strides():
    norm, w = lathe.torch.wrap("softmax"), torch.randn(6, 16).double()
    for x in (w[:, ::2], w.t()[:6], w[:, :1].expand(6, 8), w[::2, 1:9]):
        for _ in range(2):
            same(norm(x), torch.softmax(x, -1))
    keep = w[:, ::2]
    assert keep.stride() == (16, 2)


# ---- dtypes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compiled", [False, True])
def test_int64_indices(qkv, compiled):
    run = (lambda f: torch.compile(f, fullgraph=True, backend="aot_eager")) if compiled else lambda f: f
    x, target = torch.randn(5, 7, **DOUBLE), torch.tensor([1, 6, 0, 0, 3])
    rows = lathe.torch.wrap("cross_entropy", results="loss")
    given = run(lambda x: rows(x, target=target))(x)
    wanted = F.cross_entropy(x, target, reduction="none")
    same(given, wanted)
    same(torch.autograd.grad(given.sum(), x)[0], torch.autograd.grad(wanted.sum(), x)[0])
    q, k, v = (t[:1] for t in qkv)
    packed = lathe.torch.wrap("causal")
    cu = torch.tensor([0, 2, 6])
    given = run(lambda q, k, v: packed(q, k, v, cu_q=cu))(q, k, v)
    wanted = torch.cat([plain(*(t[:, :, a:b] for t in (q, k, v))) for a, b in ((0, 2), (2, 6))], 2)
    same(given, wanted)
    same(torch.autograd.grad(given.square().sum(), q)[0], torch.autograd.grad(wanted.square().sum(), q)[0])
    with pytest.raises(lathe.ArgumentError, match="'target': expected numbers from -2147483648 to 2147483647"):
        rows(x.detach(), target=target + 2**32)


def test_a_model_in_bf16_is_told_of_float():
    q, k, v = torch.randn(3, 1, 2, 6, 16).bfloat16().unbind(0)
    sinks = lathe.torch.wrap("sinks")
    with pytest.raises(lathe.ArgumentError, match=r"'sink': expected dtype f32, given bf16; .*sink.float\(\).*float"):
        sinks(q, k, v, sink=torch.zeros(2).bfloat16())
    with pytest.raises(lathe.ArgumentError, match=r"sink.float\(\)"):
        lathe.load("sinks")(q, k, v, sink=torch.zeros(2).bfloat16())
    assert sinks(q, k, v, sink=torch.zeros(2)).dtype == torch.bfloat16
    with pytest.raises(lathe.ArgumentError, match="'doc': expected dtype i32, given complex64; .*torch.int32"):
        lathe.torch.wrap("document")(q, k, v, doc=torch.zeros(1, 6, dtype=torch.complex64))


# ---- other kinds of tensors ------------------------------------------------------------------------------------------


def test_tensors_without_data_give_shapes():
    like = lambda *shape: torch.empty(*shape, device="meta", dtype=torch.bfloat16, requires_grad=True)
    q, k, v = like(2, 6, 4, 16), like(2, 9, 2, 16), like(2, 9, 2, 32)
    o, lse = lathe.torch.wrap("causal", layout="bshd", results=("o", "lse"))(q, k, v)
    assert (o.shape, o.dtype, o.device.type) == ((2, 6, 4, 32), torch.bfloat16, "meta")
    assert (lse.shape, lse.dtype) == ((2, 4, 6), torch.float32)
    o.sum().backward()
    assert (v.grad.shape, v.grad.dtype, v.grad.device.type) == ((2, 9, 2, 32), torch.bfloat16, "meta")
    with pytest.raises(lathe.ArgumentError, match="argument 'k': expected shape"):
        lathe.torch.wrap("causal")(q, k[..., :8], v)
    with torch.device("meta"):
        layer = torch.nn.Linear(16, 16)
        assert lathe.torch.wrap("rms_norm")(layer(torch.empty(5, 16)), torch.empty(16)).shape == (5, 16)
    with pytest.raises(lathe.ArgumentError, match="expected a tensor on meta"):
        lathe.torch.wrap("rms_norm")(torch.empty(5, 16, device="meta"), torch.empty(16))


def test_tensors_without_data_are_none_of_the_cpu(qkv):
    q, k, v = (t.detach() for t in qkv)
    like = [t.to("meta") for t in (q, k, v)]
    before, behind = lathe.torch.wrap("causal"), lathe.torch.wrap("causal")
    o = before(q, k, v)
    assert before(*like).device.type == "meta" and behind(*like).device.type == "meta"
    torch.testing.assert_close(behind(q, k, v), o)
    with pytest.raises(lathe.ArgumentError, match="argument 'k': expected a tensor on cpu"):
        before(q, like[1], v)


def test_kinds_that_are_refused(qkv):
    q, k, v = (t.detach() for t in qkv)
    attend = lathe.torch.wrap("causal")
    parts = [torch.randn(n, 2, 8) for n in (2, 3)]
    for layout in (torch.jagged, torch.strided):
        nested = torch.nested.nested_tensor(parts, layout=layout)
        with pytest.raises(lathe.ArgumentError, match="'q': a nested tensor.*layout='thd'.*cu_q=q.offsets"):
            attend(nested, nested, nested)
    with pytest.raises(lathe.ArgumentError, match="'k': expected a dense tensor.*to_dense"):
        attend(q, k.to_sparse(), v)


def test_jagged_tensors_as_the_sentence_says():
    jagged = [torch.nested.nested_tensor([torch.randn(n, 2, 8) for n in (2, 5)], layout=torch.jagged) for _ in range(3)]
    q, k, v = jagged
    o = lathe.torch.wrap("causal", layout="thd")(q.values(), k.values(), v.values(), cu_q=q.offsets())
    alone = zip(*(t.unbind() for t in jagged))
    wanted = [plain(*(t[None].transpose(1, 2) for t in one))[0].transpose(0, 1) for one in alone]
    same(o, torch.cat(wanted), 1e-5)


def test_distributed_tensors(qkv, tmp_path):
    distributed = pytest.importorskip("torch.distributed.tensor")
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_gloo_available():
        pytest.skip("torch has no gloo")
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        mesh = distributed.init_device_mesh("cpu", (1,)) if hasattr(distributed, "init_device_mesh") else None
        mesh = mesh or dist.device_mesh.init_device_mesh("cpu", (1,))
        q, k, v = (distributed.distribute_tensor(t.detach(), mesh, [distributed.Shard(1)]) for t in qkv)
        attend = lathe.torch.wrap("causal")
        with pytest.raises(lathe.ArgumentError, match="'q': a DTensor.*local_map"):
            attend(q, k, v)
        from torch.distributed.tensor.experimental import local_map

        heads = [distributed.Shard(1)]
        mapped = local_map(attend, out_placements=heads, in_placements=(heads,) * 3, device_mesh=mesh)
        same(mapped(q, k, v).to_local(), plain(*(t.detach() for t in qkv)))
    finally:
        dist.destroy_process_group()


# ---- layouts ---------------------------------------------------------------------------------------------------------


def random_of_linear(h=3, t=5, d=8):
    torch.manual_seed(4)
    q, k, v = (torch.randn(1, h, t, d, **DOUBLE) for _ in range(3))
    g, beta = (-torch.rand(1, h, t, dtype=torch.float64)).requires_grad_(), torch.rand(1, h, t, **DOUBLE)
    return q, k, v, beta, g


@pytest.mark.parametrize("t", [3, 5])  # 3: a gate that is transposed would have a right shape
def test_gates_have_tokens_first_as_well(t):
    tensors = random_of_linear(t=t)
    turned = [x.detach().transpose(1, 2).contiguous().requires_grad_() for x in tensors]
    first, second = lathe.torch.wrap("gated_delta"), lathe.torch.wrap("gated_delta", layout="bshd")
    o = first(*tensors[:3], beta=tensors[3], g=tensors[4])
    p = second(*turned[:3], beta=turned[3], g=turned[4])
    same(p, o.transpose(1, 2), 0)
    seed = torch.randn_like(o)
    for a, b in zip(torch.autograd.grad(o, tensors, seed), torch.autograd.grad(p, turned, seed.transpose(1, 2))):
        same(b, a.transpose(1, 2), 0)
    run = torch.compile(lambda *x: second(*x[:3], beta=x[3], g=x[4]), fullgraph=True, backend="aot_eager")
    same(run(*turned), p, 0)
    flat = lathe.torch.wrap("gated_delta", layout="thd")
    q, k, v, beta, g = (x[0] for x in turned)
    same(flat(q, k, v, beta=beta, g=g, cu=torch.tensor([0, t])), p[0], 0)


def test_inputs_over_two_kinds_of_tokens_lie_as_declared(qkv):
    text = """return attention { inputs = { bias = tensor("f32", "h", "q", "kv"), slope = tensor("f32", "h") },
      score_mod = function(s, at, x) return s + x.bias(at.h, at.row, at.kv) + x.slope(at.h) end }"""
    q, k, v = (t.detach() for t in qkv)
    bias, slope = torch.randn(2, 6, 6).double(), torch.ones(2).double()
    attend = lathe.torch.wrap(text, layout="bshd")
    o = attend(*(t.transpose(1, 2) for t in (q, k, v)), bias=bias, slope=slope)
    same(o.transpose(1, 2), F.scaled_dot_product_attention(q, k, v, attn_mask=bias))


def test_the_layout_is_told():
    text = lathe.torch.wrap("gated_delta", layout="bshd").__doc__
    assert "q [b, t, h_k, d] float" in text and "g [b, t, h] float" in text and "o [b, t, h, d_v]" in text
    assert "q [q, h, d] float" in lathe.torch.wrap("causal", layout="thd").__doc__


def test_messages_have_shapes_as_they_were_given(qkv):
    q, k, v = (t.detach().transpose(1, 2) for t in qkv)
    attend = lathe.torch.wrap("causal", layout="bshd")
    with pytest.raises(lathe.ArgumentError) as caught:
        attend(q, k, v[:, :, :, None].squeeze(3)[:, :5])
    assert "given [2, 5, 2, 8]" in str(caught.value).replace(",", ", ").replace("  ", " "), caught.value
    assert "layout 'bshd': v [b, kv, h_kv, d_v]" in str(caught.value)
    packed = lathe.torch.wrap("causal", layout="thd")
    with pytest.raises(lathe.ArgumentError, match=r"'q': expected shape \[q, h, d\] .* given \[2, 6, 2, 8\]"):
        packed(q, k, v, cu_q=torch.tensor([0, 6]))


def test_packed_tokens_need_their_sequences(qkv):
    q, k, v = (t.detach()[0].transpose(0, 1) for t in qkv)
    with pytest.raises(lathe.ArgumentError, match=r"'cu_q': missing; layout 'thd' is of packed.*\[0, tokens\] for"):
        lathe.torch.wrap("causal", layout="thd")(q, k, v)
    with pytest.raises(lathe.ArgumentError, match="'cu': missing; layout 'thd'"):
        lathe.torch.wrap("linear", layout="thd")(q, k, v)


# ---- results ---------------------------------------------------------------------------------------------------------


def test_results_by_default_and_by_one_name():
    x = torch.randn(3, 9, **DOUBLE)
    same(lathe.torch.wrap("logsumexp")(x), torch.logsumexp(x, -1))
    same(lathe.torch.wrap("topk", results="values")(x), x.topk(8).values)
    same(lathe.torch.wrap("topk")(x), x.topk(8).values)
    same(lathe.torch.wrap("topk", results="places")(x), x.topk(8).indices.to(torch.int32))
    target = torch.tensor([2, 0, 8])
    loss = lathe.torch.wrap("cross_entropy")
    same(loss(x, target), F.cross_entropy(x, target, reduction="none"))
    (given,), (wanted,) = (torch.autograd.grad(f(x, target).sum(), x) for f in (loss, F.cross_entropy))
    same(given, 3 * wanted)
    with pytest.raises(lathe.ArgumentError, match="has no result 'losses'"):
        lathe.torch.wrap("cross_entropy", results="losses")


def test_parts_of_rows(qkv):
    q, k, v = (t.detach() for t in qkv)
    op = lathe.load("causal")
    parts = lathe.torch.wrap(op, results=("part_o", "part_rows"))
    made = [parts(q, k[:, :, a:b], v[:, :, a:b], q_start=-a) for a, b in ((0, 4), (4, 6))]
    same(op.combine(*(torch.stack(t) for t in zip(*made))), plain(q, k, v))
    run = torch.compile(lambda q, k, v: parts(q, k, v, q_start=0), fullgraph=True, backend="aot_eager")
    same(run(q, k, v)[0], parts(q, k, v, q_start=0)[0])
    with pytest.raises(lathe.ArgumentError, match="'q': requires a gradient, and parts of rows have none"):
        parts(*qkv)


def test_texts_and_names():
    q, k, v = torch.randn(3, 1, 2, 6, 8).unbind(0)
    same(lathe.torch.wrap("return attention { mask_mod = causal }")(q, k, v), lathe.torch.wrap("causal")(q, k, v), 0)
    with pytest.raises(lathe.SpecError, match="did you mean 'causal'"):
        lathe.torch.wrap("causall")
    with pytest.raises(lathe.ArgumentError, match="expected a lathe.Op, a file.*given int"):
        lathe.torch.wrap(3)


def test_keys_and_values_of_8_bits():
    op = lathe.torch.wrap(lathe.load("causal"))
    q, k, v = (torch.randn(1, h, 9, 16) for h in (4, 2, 2))
    for kind in (torch.float8_e4m3fn, torch.float8_e5m2, torch.int8):
        k8, v8 = (4 * k).to(kind), (4 * v).to(kind)
        torch.testing.assert_close(op(q, k8, v8), op(q, k8.float(), v8.float()), rtol=0, atol=0)
        torch.testing.assert_close(lathe.load("causal")(q, k8, v8), op(q, k8.float(), v8.float()), rtol=0, atol=0)
        leaf, same_leaf = (q.clone().requires_grad_() for _ in range(2))
        op(leaf, k8, v8).sum().backward()
        op(same_leaf, k8.float(), v8.float()).sum().backward()
        torch.testing.assert_close(leaf.grad, same_leaf.grad, rtol=0, atol=0)
    k8 = (4 * k).to(torch.float8_e4m3fn).requires_grad_()
    with pytest.raises(lathe.ArgumentError, match="'k': requires a gradient, and torch would round it to .*e4m3fn"):
        op(q, k8, v)


def test_keys_and_values_of_8_bits_in_pages():
    op = lathe.torch.wrap(lathe.load("causal"))
    pages = torch.tensor([[4, 0, 2], [1, 3, 4]], dtype=torch.int32)
    q, do = (torch.randn(2, 4, 7, 16) for _ in range(2))
    k8, v8 = ((4 * torch.randn(5, 2, 3, 16)).to(kind) for kind in (torch.float8_e4m3fn, torch.int8))
    leaf, same_leaf = (q.clone().requires_grad_() for _ in range(2))
    op(leaf, k8, v8, pages=pages).backward(do)
    op(same_leaf, k8.float(), v8.float(), pages=pages).backward(do)
    torch.testing.assert_close(leaf.grad, same_leaf.grad, rtol=0, atol=0)
    backward = lathe.load("causal").backward
    grads = [backward(q, k, v, do=do, pages=pages, dk=True, dv=True) for k, v in ((k8, v8), (k8.float(), v8.float()))]
    for given, wanted in zip(*grads):
        assert given.dtype == torch.float32 and given.shape == k8.shape
        torch.testing.assert_close(given, wanted, rtol=0, atol=0)


def test_autocast_leaves_caches_of_8_bits(monkeypatch):
    op = lathe.torch.wrap(lathe.load("causal"))
    q, k, v = (torch.randn(1, h, 9, 16) for h in (4, 2, 2))
    k8, v8 = (4 * k).to(torch.float8_e4m3fn), (4 * v).to(torch.int8)
    with torch.autocast("cpu", torch.bfloat16):
        seen = op.autocast(("q", "k", "v"), (q, k8, v8))
        o = op(q, k8, v8)
    assert [t.dtype for t in seen] == [torch.bfloat16, torch.float8_e4m3fn, torch.int8]
    torch.testing.assert_close(o, op(q.bfloat16(), k8, v8), rtol=0, atol=0)


def test_queries_of_8_bits():
    op = lathe.torch.wrap(lathe.load("causal"))
    q8, k8, v8 = (torch.randn(1, h, 9, 16).to(torch.float8_e4m3fn) for h in (4, 2, 2))
    wanted = op(q8.float(), k8.float(), v8.float()).bfloat16()
    torch.testing.assert_close(op(q8, k8, v8), wanted, rtol=0, atol=0)
    torch.testing.assert_close(lathe.load("causal")(q8, k8, v8), wanted, rtol=0, atol=0)
    with pytest.raises(lathe.ArgumentError, match="'k': expected dtype f8e4m3 beside 'q' of f8e4m3, given f32"):
        op(q8, k8.float(), v8)


def test_no_queries_have_a_backward_pass():
    """torch gives no address for tensors without elements, and the library takes NULL for an argument left out."""
    q, k, v = (torch.randn(1, 2, n, 16, dtype=torch.float64, requires_grad=True) for n in (0, 5, 5))
    o, lse = lathe.torch.wrap("causal", results=("o", "lse"))(q, k, v)
    torch.autograd.backward([o, lse], [torch.zeros_like(o), torch.zeros_like(lse)])
    assert q.grad.shape == q.shape and not k.grad.any() and not v.grad.any()
    dk = lathe.load("causal").backward(q.detach(), k.detach(), v.detach(), o=o.detach(), do=o.detach(), dk=True)
    assert not dk.any()


# ---- tensors that are not what lies in their memory ------------------------------------------------------------------


def negated(*shape, seed=1):
    """A tensor that is read with the other sign: the imaginary part of a conjugate, its neighbour's memory between."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.complex128, generator=generator).conj().imag


@pytest.mark.parametrize("dense", [False, True])
def test_tensors_that_are_read_with_the_other_sign(qkv, dense):
    attend = lathe.torch.wrap("causal")
    given = [negated(2, 2, 6, 8, seed=seed) for seed in range(4)]
    given = [torch._neg_view(-t.resolve_neg()) for t in given] if dense else given
    assert all(t.is_neg() for t in given)
    leaves = [t.clone().requires_grad_() for t in given[:3]]
    wanted = plain(*leaves)
    mapped = lambda *three: torch.func.vmap(attend)(*(t[None] for t in three))[0]
    compiled = torch.compile(attend, backend="eager", fullgraph=True)
    for call in (attend, mapped, compiled, lathe.load("causal")):
        same(call(*given[:3]), wanted.detach())
    gradients = torch.autograd.grad(wanted, leaves, given[3])
    same(torch.autograd.grad(attend(*qkv), qkv, given[3]), torch.autograd.grad(plain(*qkv), qkv, given[3]))
    again = [t.detach().requires_grad_() for t in given[:3]]
    same(torch.autograd.grad(attend(*again), again, given[3]), gradients)


def test_results_that_are_read_with_the_other_sign_are_refused(qkv):
    q, k, v = (t.detach() for t in qkv)
    with pytest.raises(lathe.ArgumentError, match=r"'o': expected a tensor that holds its numbers"):
        lathe.load("causal")(q, k, v, o=torch._neg_view(torch.empty_like(q)))
    with pytest.raises(lathe.ArgumentError, match=r"'x': expected a tensor that holds its numbers"):
        lathe.load("act_silu")(torch._neg_view(q.clone()))


def test_tensors_whose_memory_was_given_back_are_refused(qkv):
    q, k, v = (t.detach() for t in qkv)
    gone = torch.randn(2, 2, 6, 8, dtype=torch.float64)
    gone.untyped_storage().resize_(0)  # as FSDP does
    for call in (lathe.torch.wrap("causal"), lathe.load("causal")):
        with pytest.raises(lathe.ArgumentError, match=r"'k': expected a tensor with memory, given one of shape \[2, 2"):
            call(q, gone, v)


# ---- what is written over --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", [lambda x: lathe.load("act_silu")(x), lambda x: lathe.load("softmax")(x * 1, y=x)])
def test_autograd_sees_what_was_written_over(call):
    kept = torch.ones(2, 3, requires_grad=True) * 1
    y = kept.square().sum()
    with torch.no_grad():
        call(kept)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_the_reference_writes_over_nothing():
    x = torch.ones(2, 3, dtype=torch.float64)
    lathe.load("act_silu").reference(x)
    same(x, torch.ones_like(x), 0)
