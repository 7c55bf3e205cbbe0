"""Tensors of more than 2^31 elements: a part of a result is that of a call with this part alone.

Skipped where no GPU has 100 GB of memory.
"""

import gc

import lathe
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
if not torch.cuda.is_available() or torch.cuda.get_device_properties(0).total_memory < 100e9:
    pytest.skip("torch sees no GPU of 100 GB", allow_module_level=True)
import lathe.torch  # noqa: E402

DEVICE, LARGE = "cuda", 2**31


@pytest.fixture(autouse=True)
def memory():
    torch.manual_seed(7)
    yield
    gc.collect()
    torch.cuda.empty_cache()


def make(*shape, dtype=torch.bfloat16, grad=False):
    return torch.randn(shape, device=DEVICE, dtype=dtype).requires_grad_(grad)


def rows_for(elements):
    """How many rows of so many elements lie beyond 2^31, with some to spare."""
    return LARGE // elements + 3


def part_of(tensor, axis, first, size):
    return tensor.detach().narrow(axis, first, size).requires_grad_(tensor.requires_grad)


def run(function, tensors, seed):
    """The result and the gradients of those tensors that want one."""
    wanting = [t for t in tensors if t.requires_grad]
    out = function(*tensors)
    return [out.detach(), *(torch.autograd.grad(out, wanting, seed) if wanting else ())]


def check(function, tensors, axis, whole=(), error=2e-2):
    """Parts along an axis of all tensors, beside calls of these parts; `whole` tensors come behind and have no part."""
    size = tensors[0].shape[axis]
    with torch.no_grad():
        seed = torch.randn_like(function(*tensors, *whole)) if any(t.requires_grad for t in tensors) else None
    results = run(lambda *given: function(*given, *whole), tensors, seed)
    for first in {0, size // 2, size - 2, size - 1}:
        few = [part_of(t, axis, first, 1) for t in tensors]
        alone = run(lambda *given: function(*given, *whole), few, None if seed is None else seed.narrow(axis, first, 1))
        for given, wanted in zip(results, alone, strict=True):
            given = given.narrow(axis, first, 1)
            torch.testing.assert_close(given.float(), wanted.float(), rtol=error, atol=error)


# ---- attention ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [64, 128, 256])
@pytest.mark.parametrize("spec", ["causal", "softcap"])
def test_batches_of_attention(spec, d):
    batch = rows_for(32 * 2048 * d)
    check(lathe.torch.wrap(spec), [make(batch, 32, 2048, d, grad=True) for _ in "qkv"], 0)


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_a_million_tokens_in_a_window(layout):
    heads, tokens = rows_for(2**20 * 128), 2**20
    shape = (1, heads, tokens, 128) if layout == "bhsd" else (1, tokens, heads, 128)
    attend = lathe.torch.wrap("sliding_window", layout=layout)
    check(lambda q, k, v: attend(q, k, v, window=512), [make(*shape, grad=True) for _ in "qkv"], layout.index("h"))


def test_packed_sequences():
    tokens, heads = rows_for(32 * 128), 32
    cu = torch.tensor([*range(0, tokens - 1, 3001), tokens], device=DEVICE, dtype=torch.int32)
    attend = lathe.torch.wrap("causal", layout="thd")
    q, k, v = (make(tokens, heads, 128, grad=True) for _ in "qkv")
    seed = make(tokens, heads, 128)
    given = run(lambda q, k, v: attend(q, k, v, cu_q=cu), [q, k, v], seed)
    first, last = int(cu[-2]), tokens
    alone = lathe.torch.wrap("causal", layout="bshd")
    few = [part_of(t, 0, first, last - first)[None] for t in (q, k, v)]
    for whole, wanted in zip(given, run(alone, few, seed[None, first:last]), strict=True):
        torch.testing.assert_close(whole[first:last].float(), wanted[0].float(), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("queries", [1, 4, 128])
def test_long_caches(queries):
    batch = rows_for(8 * 16384 * 128)
    q, k, v = make(batch, 32, queries, 128), make(batch, 8, 16384, 128), make(batch, 8, 16384, 128)
    check(lathe.load("causal"), [q, k, v], 0)


@pytest.mark.parametrize("queries", [1, 4, 512])
def test_pools_of_pages(queries):
    """The pages that are read lie at the pool's end."""
    pages, most = rows_for(8 * 64 * 128), 64
    pools = [make(pages, 64, 8, 128).transpose(1, 2) for _ in "kv"]
    table = (pages - 1 - torch.arange(2 * most, device=DEVICE, dtype=torch.int32)).view(2, most)
    used = torch.full((2,), most * 64, device=DEVICE, dtype=torch.int32)
    q = make(2, 32, queries, 128)
    given = lathe.load("causal")(q, *pools, pages=table, used_kv=used)
    dense = [p[table.long()].transpose(1, 2).reshape(2, 8, most * 64, 128) for p in pools]
    wanted = lathe.load("causal")(q, *dense)
    torch.testing.assert_close(given.float(), wanted.float(), rtol=2e-2, atol=2e-2)


# ---- linear attention -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", ["simple_gla", "gated_delta", "delta_rule", "lightning"])
def test_batches_of_linear_attention(spec):
    linear_attention(spec, rows_for(32 * 2048 * 128), 32, 2048)


@pytest.mark.parametrize("spec", ["gla", "kda"])
def test_decays_by_channel(spec):
    linear_attention(spec, rows_for(32 * 2048 * 128) // 2, 32, 2048)  # states and gates are as large as in the others


def test_long_sequences_of_linear_attention():
    linear_attention("gated_delta", 1, rows_for(2**20 * 128), 2**20, axis=1)


def linear_attention(spec, batch, heads, tokens, axis=0):
    call = lathe.torch.wrap(spec)
    q, k, v = (make(batch, heads, tokens, 128, grad=True) for _ in "qkv")
    gates = {}
    if spec in ("simple_gla", "gated_delta", "gla", "kda"):
        shape = (batch, heads, tokens, 128) if spec in ("gla", "kda") else (batch, heads, tokens)
        gates["g"] = -torch.rand(shape, device=DEVICE)
    if spec in ("gated_delta", "delta_rule", "kda"):
        gates["beta"] = torch.rand((batch, heads, tokens), device=DEVICE)
    if spec == "lightning":
        check(lambda q, k, v: call(q, k, v), [q, k, v], 0)
        return
    names = [*gates]
    function = lambda q, k, v, *given: call(q, k, v, **dict(zip(names, given, strict=True)))
    check(function, [q, k, v, *gates.values()], axis, error=4e-2)


# ---- rows and elements ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1024, 4096, 65536])
@pytest.mark.parametrize("spec", ["rms_norm", "layer_norm", "softmax", "log_softmax", "cumsum", "logcumsumexp"])
def test_rows(spec, n):
    weights = {"rms_norm": 1, "layer_norm": 2}.get(spec, 0)
    function = lathe.torch.wrap(spec)
    check(function, [make(rows_for(n), n, grad=True)], 0, [make(n) for _ in range(weights)])


@pytest.mark.parametrize("spec", ["softmax_inner", "log_softmax_inner"])
def test_rows_along_an_inner_dim(spec):
    check(lathe.torch.wrap(spec), [make(rows_for(64 * 4096), 64, 4096, grad=True)], 0)


def test_logits_of_a_large_vocabulary():
    words = 152064
    x = make(rows_for(words), words, grad=True)
    target = torch.randint(words, (x.shape[0],), device=DEVICE, dtype=torch.int32)
    check(lathe.torch.wrap("cross_entropy"), [x, target], 0)


def test_largest_of_rows():
    x = make(rows_for(4096), 4096)
    for first in (0, x.shape[0] - 1):
        given, wanted = (torch.empty((n, 8), device=DEVICE, dtype=x.dtype) for n in (x.shape[0], 1))
        lathe.load("topk")(x, values=given)
        lathe.load("topk")(x[first : first + 1], values=wanted)
        assert torch.equal(given[first : first + 1], wanted)


@pytest.mark.parametrize("spec", ["swiglu", "geglu"])
def test_elements(spec):
    check(lathe.torch.wrap(spec), [make(rows_for(8192), 8192, grad=True) for _ in "gu"], 0)


def test_a_large_table():
    """Strides of inputs have 32 bits: a table of more elements is refused, one of fewer is read to its end."""
    look = lathe.torch.wrap("embedding")
    words, n = rows_for(8192) - 4, 8192
    table = make(words, n, grad=True)
    id = torch.tensor([[0, words - 1, 1, words - 1, words // 2]], device=DEVICE, dtype=torch.int32)
    y = look(id=id, table=table)
    assert torch.equal(y, table.detach()[id.long()])
    (given,) = torch.autograd.grad(y, table, torch.ones_like(y))
    count = torch.bincount(id[0], minlength=words)
    assert torch.equal(given.sum(1, dtype=torch.float32), count.float() * n)
    if DEVICE == "cuda":
        del table, y, given
        with pytest.raises(lathe.ArgumentError, match="stride below 2"):
            look(id=id, table=make(rows_for(n), n))


def test_large_parameters():
    ours, theirs = (torch.nn.Parameter(make(rows_for(4096), 4096, dtype=torch.float32)) for _ in range(2))
    with torch.no_grad():
        theirs.copy_(ours)
    optimizers = [lathe.torch.AdamW([ours], lr=0.01), torch.optim.AdamW([theirs], lr=0.01, fused=True)]
    for p, optimizer in zip((ours, theirs), optimizers, strict=True):
        p.grad = torch.full_like(p, 0.3)
        optimizer.step()
        p.grad = None
        optimizer.state.clear()
    for first in (0, ours.shape[0] - 1):
        torch.testing.assert_close(ours[first], theirs[first], rtol=1e-6, atol=1e-7)
