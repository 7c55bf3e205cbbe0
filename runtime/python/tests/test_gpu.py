"""lathe.torch on a GPU: skipped where torch sees none. What is compared with is torch's own attention in f32."""

import gc

import lathe
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
if not torch.cuda.is_available():
    pytest.skip("torch sees no GPU", allow_module_level=True)
import lathe.torch  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention as sdpa  # noqa: E402


@pytest.fixture
def qkv():
    torch.manual_seed(3)
    return [torch.randn(2, 4, 200, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]


def plain(q, k, v):
    return sdpa(q.float(), k.float(), v.float(), is_causal=True).to(q.dtype)


def same(given, wanted, error=2e-2):
    torch.testing.assert_close(given.float(), wanted.float(), rtol=error, atol=error)


def gradients(function, tensors):
    out = function(*tensors)
    seed = torch.linspace(-1, 1, out.numel(), device=out.device, dtype=torch.float32).view(out.shape).to(out.dtype)
    return torch.autograd.grad((out * seed).sum(), tensors)


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_forward_and_backward(qkv, layout):
    attend = lathe.torch.wrap("causal", layout=layout)
    turn = (lambda t: t.transpose(1, 2)) if layout == "bshd" else (lambda t: t)
    run = lambda q, k, v: turn(attend(turn(q), turn(k), turn(v)))
    same(run(*qkv), plain(*qkv))
    for given, wanted in zip(gradients(run, qkv), gradients(plain, qkv)):
        same(given, wanted)


def test_latents_beside_a_second_pair():
    """q and q2, latents and rotary keys of one head, which are values, too; gradients through both."""
    torch.manual_seed(4)
    make = lambda h, d: torch.randn(2, h, 200, d, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    tensors = make(4, 128), make(1, 128), make(4, 64), make(1, 64)

    def whole(q, k, q2, k2):
        keys = torch.cat([k, k2], -1).expand(2, 4, 200, 192).float()
        values = k.expand(2, 4, 200, 128).float()
        return sdpa(torch.cat([q, q2], -1).float(), keys, values, is_causal=True, scale=192**-0.5).to(q.dtype)

    attend = lathe.torch.wrap("mla_decoupled")
    same(attend(*tensors), whole(*tensors))
    for given, wanted in zip(gradients(attend, tensors), gradients(whole, tensors)):
        same(given, wanted, 5e-2)


def test_f32(qkv):
    """Products of three of bf16 each, forward and backward; beside f64."""
    singles = [t.detach().float().requires_grad_() for t in qkv]
    doubles = [t.detach().double().requires_grad_() for t in singles]
    exact = lambda q, k, v: sdpa(q, k, v, is_causal=True)
    attend = lathe.torch.wrap("causal")
    o = attend(*singles)
    assert o.dtype == torch.float32
    same(o, exact(*doubles), 1e-4)
    for given, wanted in zip(gradients(attend, singles), gradients(exact, doubles)):
        assert given.dtype == torch.float32
        same(given, wanted, 2e-4)


@pytest.mark.parametrize("spec", ["causal", "sinks", "retention", "softcap"])
@pytest.mark.parametrize("queries", [1, 70, 300])
def test_parts_of_rows(spec, queries):
    """By attention_decode and by kernels of whole rows; one part has no keys, and the finals come with o."""
    torch.manual_seed(queries)
    op, n, d = lathe.load(spec), 2048, 128
    q = torch.randn(2, 8, queries, d, device="cuda").bfloat16()
    k, v = (torch.randn(2, 2, n, d, device="cuda").bfloat16() for _ in "kv")
    inputs = {"sink": torch.randn(8, device="cuda")} if spec == "sinks" else {}
    cuts = [(1024, n), (600, 600), (0, 600), (600, 1024)]
    parts = [op.parts(q, k[:, :, a:b], v[:, :, a:b], q_start=n - queries - a, **inputs) for a, b in cuts]
    finals = {r.name: True for r in op.joining.results if r.name != "o"}
    part_o, part_rows = (torch.stack([getattr(p, name) for p in parts]) for name in ("part_o", "part_rows"))
    joined = op.combine(part_o, part_rows, o=torch.empty_like(q), **inputs, **finals)
    whole = op.reference(q, k, v, **inputs, **finals)
    for name in ("o", *finals):
        same(getattr(joined, name).cpu(), torch.from_numpy(getattr(whole, name)))


@pytest.mark.parametrize("page", [1, 3, 16, 64, 256])
@pytest.mark.parametrize("queries", [1, 4, 70])
def test_keys_in_pages(page, queries):
    """One to a few queries go to attention_decode, more to attention_fwd_sm80; unused places are NaN."""
    torch.manual_seed(page)
    n, h, h_kv, d, used = 3, 8, 2, 128, [1024, 513, 777]
    most = -(-1024 // page)
    table = torch.randperm(n * most + 5, device="cuda")[: n * most].to(torch.int32).view(n, most)
    pools = [torch.full((n * most + 5, page, h_kv, d), float("nan"), device="cuda").bfloat16() for _ in "kv"]
    dense = [torch.randn(n, h_kv, 1024, d, device="cuda").bfloat16() for _ in "kv"]
    q = torch.randn(n, h, queries, d, device="cuda").bfloat16()
    for pool, a in zip(pools, dense):
        for b, length in enumerate(used):
            j = torch.arange(length, device="cuda")
            pool[table[b, j // page].long(), j % page] = a[b, :, :length].transpose(0, 1)
    lengths = torch.tensor(used, dtype=torch.int32, device="cuda")
    o = lathe.load("causal")(q, *(p.transpose(1, 2) for p in pools), pages=table, used_kv=lengths)
    for b, length in enumerate(used):
        k, v = (a[b : b + 1, :, :length].repeat_interleave(h // h_kv, 1).float() for a in dense)
        mask = torch.ones(queries, length, dtype=torch.bool, device="cuda").tril(length - queries)
        same(o[b : b + 1], sdpa(q[b : b + 1].float(), k, v, attn_mask=mask))


def test_tokens_go_to_their_slots():
    torch.manual_seed(5)
    q, k, v = (torch.randn(4, 3, heads, 64, device="cuda").bfloat16() for heads in (8, 2, 2))
    slot = torch.tensor([[5, 0, -1], [9, 3, 100], [7, -5, 1], [2, 4, 6]], dtype=torch.int32, device="cuda")
    caches = [torch.full((10, 2, 64), float("nan"), device="cuda").bfloat16() for _ in "kv"]
    pos = torch.arange(3, dtype=torch.int32, device="cuda").expand(4, 3).contiguous()
    results = {"q_out": True, "k_cache": caches[0], "v_cache": caches[1]}
    lathe.load("rope_append")(q=q, k=k, v=v, slot=slot, pos=pos, **results)
    k_out = torch.empty_like(k)
    lathe.load("rope_half")(q=q, q_out=True, k=k, k_out=k_out)
    for cache, given in zip(caches, (k_out, v)):
        wanted = torch.full_like(cache, float("nan"))
        inside = (slot >= 0) & (slot < 10)
        wanted[slot[inside].long()] = given[inside]
        torch.testing.assert_close(cache, wanted, rtol=2e-2, atol=2e-2, equal_nan=True)


def test_non_contiguous_and_expanded(qkv):
    q, k, v = (t.detach() for t in qkv)
    attend = lathe.torch.wrap("causal")
    one = k[:, :1].expand(-1, 4, -1, -1)
    same(attend(q, one, v), plain(q, one, v))
    every_other = torch.randn(2, 4, 200, 128, device="cuda", dtype=torch.bfloat16)[..., ::2]
    same(attend(every_other, k, v), plain(every_other, k, v))
    fused = torch.randn(2, 200, 3, 4, 64, device="cuda", dtype=torch.bfloat16)
    parts = [p.transpose(1, 2) for p in fused.unbind(2)]
    same(attend(*parts), plain(*parts))


def test_opcheck(qkv):
    attend = lathe.torch.wrap("causal")
    nothing = (None,) * (len(attend.names) - 3 + len(attend.numbers))
    for operator in (attend.plain.operator, attend.training.operator):
        torch.library.opcheck(operator, (*qkv, *nothing))


def test_compile(qkv):
    attend = lathe.torch.wrap("causal")
    block = lambda q, k, v: torch.tanh(attend(q * 2, k + 1, v))
    right = lambda q, k, v: torch.tanh(plain(q * 2, k + 1, v))
    compiled = torch.compile(block, fullgraph=True)
    same(compiled(*qkv), right(*qkv))
    for given, wanted in zip(gradients(compiled, qkv), gradients(right, qkv)):
        same(given, wanted, 4e-2)


def test_compile_with_cuda_graphs(qkv):
    attend = lathe.torch.wrap("causal")
    compiled = torch.compile(lambda q, k, v: attend(q, k, v) * 2, fullgraph=True, mode="reduce-overhead")
    with torch.no_grad():
        for _ in range(4):
            o = compiled(*qkv).clone()
    same(o, plain(*qkv) * 2)


def test_cuda_graph(qkv):
    q, k, v = (t.detach() for t in qkv)
    attend = lathe.torch.wrap("causal")
    attend(q, k, v)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o = attend(q, k, v)
    q.copy_(torch.randn_like(q))
    graph.replay()
    same(o, plain(q, k, v))


def test_autocast(qkv):
    singles = [t.detach().float().requires_grad_() for t in qkv]
    attend = lathe.torch.wrap("causal")
    with torch.autocast("cuda", torch.bfloat16):
        o = attend(*singles)
    assert o.dtype == torch.bfloat16
    same(o, plain(*singles))
    assert [g.dtype for g in torch.autograd.grad(o.sum(), singles)] == [torch.float32] * 3


def test_streams(qkv):
    q, k, v = (t.detach() for t in qkv)
    attend = lathe.torch.wrap("causal")
    wanted = plain(q, k, v)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(10_000_000)
        slow = q * 1
        o = attend(slow, k, v)
    torch.cuda.current_stream().wait_stream(side)
    same(o, wanted)


def test_results_belong_to_the_stream_of_the_call(qkv):
    """What the current stream has given back it may still write: a call on another stream gets none of it."""
    q, k, v = (t.detach() for t in qkv)
    op, side = lathe.load("causal"), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    op(q, k, v, stream=side)
    torch.cuda.synchronize()
    given_back = torch.empty_like(q)
    torch.cuda._sleep(50_000_000)
    given_back.fill_(float("nan"))
    del given_back
    o = op(q, k, v, stream=side)
    torch.cuda.synchronize()
    same(o, plain(q, k, v))


def test_collecting_garbage_while_kernels_run(qkv):
    q, k, v = (t.detach() for t in qkv)
    wanted = plain(q, k, v)
    outs = []
    for i in range(30):
        attend = lathe.torch.wrap(lathe.compile("return attention { mask_mod = causal }", f"again{i % 3}.lua"))
        torch.cuda._sleep(100_000)
        outs.append(attend(q * 1, k * 1, v * 1))
        del attend
        gc.collect()
    torch.cuda.synchronize()
    for o in outs:
        same(o, wanted)


def test_an_op_takes_torch_tensors(qkv):
    q, k, v = (t.detach() for t in qkv)
    o, lse = lathe.load("causal")(q, k, v, lse=True)
    same(o, plain(q, k, v))
    assert lse.dtype == torch.float32 and lse.device == q.device
    reference = torch.from_numpy(lathe.load("causal").reference(q[:1, :1], k[:1, :1], v[:1, :1]))
    same(o[:1, :1].cpu(), reference)


def test_two_devices(qkv):
    if torch.cuda.device_count() < 2:
        pytest.skip("there is one GPU")
    attend = lathe.torch.wrap("causal")
    other = [t.detach().to("cuda:1") for t in qkv]
    same(attend(*other).cpu(), attend(*qkv).cpu(), 0)
    with pytest.raises(lathe.ArgumentError, match="as the others are"):
        attend(qkv[0], other[1], other[2])


def test_deterministic(qkv):
    attend = lathe.torch.wrap("causal")
    torch.use_deterministic_algorithms(True)
    try:
        first, second = gradients(attend, qkv), gradients(attend, qkv)
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(a, b) for a, b in zip(first, second))


@pytest.mark.parametrize("name", ["AdamW", "Lion"])
def test_optimizers_on_a_gpu_and_the_host(name):
    torch.manual_seed(5)
    first = [torch.nn.Parameter(torch.randn(n, device="cuda")) for n in (5, 64, 1000)]
    second = [torch.nn.Parameter(p.detach().cpu()) for p in first]
    ours = getattr(lathe.torch, name)
    optimizers = [ours(ps, lr=0.01, weight_decay=0.1) for ps in (first, second)]
    for step in range(3):
        for p, twin in zip(first, second):
            p.grad = torch.full_like(p, 0.3 * (step + 1))  # at another address in every step
            twin.grad = p.grad.cpu()
        for optimizer in optimizers:
            optimizer.step()
    for p, twin in zip(first, second):
        torch.testing.assert_close(p.detach().cpu(), twin.detach(), rtol=1e-5, atol=1e-6)


# ---- operands as models have them -----------------------------------------------------------------------------------


def test_int64_indices_and_strides_of_autograd():
    """Converted and copied on the stream of the call, without waiting for the GPU; also in a CUDA graph."""
    torch.manual_seed(6)
    x = torch.randn(64, 512, device="cuda", requires_grad=True)
    target = torch.randint(512, (64,), device="cuda")
    loss = lathe.torch.wrap("cross_entropy")
    same(loss(x, target), torch.nn.functional.cross_entropy(x, target, reduction="none"), 1e-5)
    weight = torch.rand(512, device="cuda")
    norm = lathe.torch.wrap("rms_norm")
    plain_norm = lambda x: torch.nn.functional.rms_norm(x, (512,), weight, 1e-6)
    torch.cuda.set_sync_debug_mode("error")
    try:
        given = [torch.autograd.grad(f(x).sum(), x)[0] for f in (lambda x: loss(x, target), lambda x: norm(x, weight))]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    wanted = torch.autograd.grad(torch.nn.functional.cross_entropy(x, target, reduction="sum"), x)[0]
    same(given[0], wanted, 1e-5)
    same(given[1], torch.autograd.grad(plain_norm(x).sum(), x)[0], 1e-4)
    wanted = torch.nn.functional.rms_norm(x.detach()[:, ::2], (256,), weight[::2], 1e-6)
    same(norm(x.detach()[:, ::2], weight[::2]), wanted, 1e-5)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    y = lathe.load("rms_norm")(x.detach()[:, ::2], weight[::2], stream=stream)
    torch.cuda.current_stream().wait_stream(stream)
    same(y, norm(x.detach()[:, ::2], weight[::2]), 0)


def test_second_derivatives_and_slices(qkv):
    f, (q, k, v) = lathe.torch.wrap("causal"), qkv
    (g,) = torch.autograd.grad(f(q, k, v).float().sum(), q, create_graph=True)
    with pytest.raises(lathe.UnsupportedError, match="a derivative of a gradient"):
        g.float().square().sum().backward()
    q, k, v = (t.detach()[:, None] for t in qkv)
    same(torch.vmap(f)(q, k, v)[:, 0], plain(*(t.detach() for t in qkv)))
    one = lambda q, k, v: f(q, k, v).float().square().sum()
    dq = torch.vmap(torch.func.grad(one))(q, k, v)[:, 0]
    (wanted,) = torch.autograd.grad(one(*qkv), qkv[:1])
    same(dq, wanted)


def test_copies_of_modules(qkv):
    import copy
    import pickle

    f, tensors = lathe.torch.wrap("causal"), [t.detach() for t in qkv]
    for other in (copy.deepcopy(f), pickle.loads(pickle.dumps(f))):
        same(other(*tensors), f(*tensors), 0)
