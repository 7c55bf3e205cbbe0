"""lathe.torch.flex_attention against torch's own, on the host device: results, gradients, what is refused. With
LATHE_TEST_DEVICE=cuda, on a GPU."""

import functools
import warnings

import lathe
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
flex = pytest.importorskip("torch.nn.attention.flex_attention", reason="this torch has no FlexAttention")
import flex_mods as mods  # noqa: E402
import lathe.torch  # noqa: E402
from torch._higher_order_ops.flex_attention import math_attention  # noqa: E402

LN2 = 0.6931471805599453
attend = lathe.torch.flex_attention


def tensors(n_q=mods.S, n_kv=mods.S, heads=mods.H, kv_heads=mods.H, dtype=torch.float32, grad=True):
    torch.manual_seed(11)
    shapes = (heads, n_q), (kv_heads, n_kv), (kv_heads, n_kv)
    return [torch.randn(mods.B, h, n, 16).to(dtype).requires_grad_(grad) for h, n in shapes]


def of_torch(q, k, v, score_mod=None, block_mask=None, scale=None):
    """torch's own formula, which has gradients on a CPU: o, lse and the largest scores."""
    score_mod = score_mod or (lambda score, b, h, q_idx, kv_idx: score)
    block_mask = block_mask or flex._create_empty_block_mask(q, k)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    o, lse, most = math_attention(q, k, v, score_mod, block_mask.as_tuple(), scale, {})
    return o, lse * LN2, most * LN2


def made(mask, n_q, n_kv, heads=None):
    return flex.create_block_mask(mask, mods.B, heads or mods.H, n_q, n_kv, device=mods.DEVICE, BLOCK_SIZE=8)


FINE = 2e-5 if mods.DEVICE == "cpu" else 2e-3  # kernels of f32 multiply by three products of bf16
on_host = pytest.mark.skipif(mods.DEVICE != "cpu", reason="of the host device")


def same(given, wanted, error=FINE):
    torch.testing.assert_close(given, wanted, rtol=error, atol=error)


def compare(operands, score_mod=None, block_mask=None, learned=(), **more):
    aux = flex.AuxRequest(lse=True, max_scores=True)
    gqa = operands[0].shape[1] != operands[1].shape[1]
    o, found = attend(*operands, score_mod, block_mask, enable_gqa=gqa, return_aux=aux, **more)
    wanted = of_torch(*operands, score_mod, block_mask, more.get("scale"))
    for one, other in zip((o, found.lse, found.max_scores), wanted):
        same(one, other)
    seeds = [torch.randn(o.shape), torch.where(wanted[1] > -torch.inf, 1.0, 0.0)]
    every = [*operands, *learned]
    right = torch.autograd.grad(wanted[:2], every, seeds)
    for one, other in zip(torch.autograd.grad([o, found.lse], every, seeds), right):
        same(one, other, FINE * max(1.0, float(other.abs().max())))


@pytest.mark.parametrize("name", mods.MASKS)
def test_masks(name):
    n_q, n_kv = mods.LENGTHS.get(name, (mods.S, mods.S))
    mask = mods.MASKS[name]()
    compare(tensors(n_q, n_kv), block_mask=made(mask, n_q, n_kv))


@pytest.mark.parametrize("name", mods.SCORES)
def test_scores(name):
    mod, learned = mods.SCORES[name]()
    compare(tensors(), mod, made(mods.causal, mods.S, mods.S), learned)


def test_both_with_grouped_heads_and_a_scale():
    mod, learned = mods.alibi_slopes()
    compare(tensors(kv_heads=2), mod, made(mods.document(), mods.S, mods.S), learned, scale=0.3)


# ---- forms of a call -------------------------------------------------------------------------------------------------


def test_results_are_those_of_torch():
    q, k, v = tensors(grad=False)
    block_mask = made(mods.causal, mods.S, mods.S)
    flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = True
    try:
        wanted = flex.flex_attention(q, k, v, mods.softcap()[0], block_mask, return_lse=True)
    finally:
        flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = False
    for one, other in zip(attend(q, k, v, mods.softcap()[0], block_mask, return_lse=True), wanted):
        same(one, other)
    found = attend(q, k, v, mods.softcap()[0], block_mask, return_aux=flex.AuxRequest(max_scores=True))[1]
    assert found.lse is None and found.max_scores.shape == q.shape[:3]
    assert isinstance(attend(q, k, v), torch.Tensor)


@on_host
def test_double_precision_passes_gradcheck():
    torch.manual_seed(1)
    q, k, v = (torch.randn(1, 2, 4, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    slopes = torch.randn(2, dtype=torch.float64, requires_grad=True)
    mod = lambda score, b, h, q_idx, kv_idx: torch.tanh(score + slopes[h] * (q_idx - kv_idx))  # noqa: E731
    assert torch.autograd.gradcheck(lambda q, k, v, _: attend(q, k, v, mod, mods.causal), (q, k, v, slopes))


def test_a_mask_alone_serves_as_a_block_mask():
    q, k, v = tensors(10, 14)
    same(attend(q, k, v, block_mask=mods.causal), of_torch(q, k, v, None, made(mods.causal, 10, 14))[0])


def test_keys_of_one_batch_serve_all_queries():
    q, k, v = tensors()
    k, v = k[:1], v[:1]
    block_mask = made(mods.causal, mods.S, mods.S)
    same(attend(q, k, v, block_mask=block_mask), of_torch(q, k, v, None, block_mask)[0])


def test_autocast_is_that_of_torch():
    q, k, v = tensors()
    with torch.autocast(mods.DEVICE, dtype=torch.bfloat16):
        assert attend(q, k, v).dtype is torch.bfloat16


# ---- lists of blocks -------------------------------------------------------------------------------------------------


def lists(mask_mod=None, full=False):
    """Blocks that no function knows: of 3 query blocks, each sees one or two key blocks."""
    counts = torch.tensor([1, 2, 2], dtype=torch.int32).expand(mods.B, mods.H, 3).contiguous()
    order = torch.tensor([[2, 0, 1], [0, 2, 1], [1, 2, 0]], dtype=torch.int32).expand(mods.B, mods.H, 3, 3).contiguous()
    more = (torch.ones_like(counts), torch.tensor([0, 1, 0], dtype=torch.int32).view(3, 1).expand(mods.B, mods.H, 3, 3))
    return flex.BlockMask.from_kv_blocks(counts, order, *(m.contiguous() for m in more if full), BLOCK_SIZE=8,
                                         mask_mod=mask_mod)  # fmt: skip


def dense(block_mask, mask_mod=None):
    """The pairs that such a BlockMask lets live, as torch's kernels see them."""
    spread = lambda counts, order: flex._ordered_to_dense(counts, order).bool()[0, 0].repeat_interleave(  # noqa: E731
        8, 0).repeat_interleave(8, 1)  # fmt: skip
    part = spread(block_mask.kv_num_blocks, block_mask.kv_indices)
    if mask_mod:
        part = part & mask_mod(0, 0, torch.arange(mods.S)[:, None], torch.arange(mods.S)[None])
    if block_mask.full_kv_indices is None:
        return part
    return part | spread(block_mask.full_kv_num_blocks, block_mask.full_kv_indices)


@pytest.mark.parametrize("mask_mod, full", [(None, False), (mods.causal, False), (mods.causal, True), (None, True)])
def test_lists_decide_beside_a_function(mask_mod, full):
    q, k, v = tensors()
    block_mask = lists(mask_mod, full)
    table = dense(block_mask, mask_mod)
    given = attend(q, k, v, block_mask=block_mask)
    wanted = of_torch(q, k, v, None, made(lambda b, h, i, j: table[i, j], mods.S, mods.S))[0]
    same(given, wanted)


def test_lists_say_no_more_than_they_must():
    """Of the function alone; lists alone, in the form that ships; lists beside the function, or in its place."""
    text = lambda block_mask: lathe.torch.spec_of(None, block_mask)  # noqa: E731
    assert "live_blocks" not in text(made(mods.causal, mods.S, mods.S))
    assert "return eq(x.live_blocks(at.b, at.h, at.row // 8, at.kv // 8), 1) end" in text(lists())
    assert "whole_blocks(" not in text(lists(mods.causal))
    assert "whole_blocks(" in text(lists(mods.causal, full=True))


def test_lists_that_are_short_name_no_other_block():
    """Of three key blocks, lists have room for one; heads share them."""
    counts, order = torch.ones(3, dtype=torch.int32), torch.tensor([[1], [0], [1]], dtype=torch.int32)
    none = [None] * 6
    block_mask = flex.BlockMask((mods.S, mods.S), counts, order, *none, (8, 8), flex.noop_mask)
    rows = torch.tensor([1, 0, 1])
    wanted = made(lambda b, h, i, j: rows[i // 8] == j // 8, mods.S, mods.S)
    q, k, v = tensors()
    same(attend(q, k, v, block_mask=block_mask), of_torch(q, k, v, None, wanted)[0])


def test_a_nested_tensor_is_refused():
    jagged = torch.nested.nested_tensor([torch.randn(3, 2, 4), torch.randn(5, 2, 4)], layout=torch.jagged)
    with pytest.raises(lathe.ArgumentError, match="a nested tensor, which is not taken"):
        attend(*[jagged.transpose(1, 2)] * 3)


def test_other_ways_to_read_a_table():
    table, column = torch.randn(mods.S), torch.randn(mods.S, 1)
    plain = lambda s, b, h, q, kv: s + table[q] + table[kv] + table[kv] * column[q, 0]  # noqa: E731

    def other(s, b, h, q, kv):
        a = torch.index_select(table, 0, q).squeeze() + torch.gather(table, 0, kv.reshape(1))[0]
        return s + a + torch.take(table, kv) * column[q][0]

    q, k, v = tensors(grad=False)
    same(attend(q, k, v, other), attend(q, k, v, plain))


def test_gradients_of_torch_func_are_refused():
    q, k, v = tensors(grad=False)
    with pytest.raises(lathe.UnsupportedError, match="torch.autograd.grad"):
        torch.func.grad(lambda q: attend(q, k, v).sum())(q)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bits(dtype):
    q, k, v = tensors(dtype=dtype, grad=False)
    mod, mask = mods.alibi()[0], made(mods.causal, mods.S, mods.S)
    o, wanted = attend(q, k, v, mod, mask), of_torch(q.float(), k.float(), v.float(), mod, mask)[0]
    assert o.dtype is dtype
    same(o.float(), wanted, 2e-2)


def test_a_compiled_function():
    q, k, v = tensors()
    mod, learned = mods.alibi_slopes()
    whole = lambda q, k, v: (attend(q * 2, k, v, mod, mods.causal) + 1).sum()  # noqa: E731
    every = (q, k, v, *learned)
    compiled = torch.compile(whole, backend="aot_eager")
    for one, other in zip(torch.autograd.grad(compiled(q, k, v), every), torch.autograd.grad(whole(q, k, v), every)):
        same(one, other)


def test_a_slice_of_a_block_mask_is_refused():
    with pytest.raises(lathe.ArgumentError, match="slice of a BlockMask"):
        attend(*tensors(), block_mask=made(mods.causal, mods.S, mods.S)[:, :1])


def test_a_block_mask_of_another_length_is_refused():
    with pytest.raises(lathe.ArgumentError, match="made for 24 queries and 24 keys, given 24 and 20"):
        attend(*tensors(mods.S, 20), block_mask=made(mods.causal, mods.S, mods.S))


# ---- what changes from call to call ----------------------------------------------------------------------------------


def test_a_mask_that_changes_below_its_lists_is_looked_at_again():
    """torch goes on with the lists; where they no longer are those of the function, both decide."""
    docs = mods.DOCS.clone()
    mask = made(lambda b, h, i, j: docs[i] == docs[j], mods.S, mods.S)
    compare(tensors(), None, mask)
    docs[:] = torch.arange(mods.S) // 12
    q, k, v = tensors(grad=False)
    listed = mask.to_dense()[0, 0].bool()

    def of_both(b, h, i, j):  # the block in the middle is a whole one of the lists
        return listed[i // 8, j // 8] & ((docs[i] == docs[j]) | (i // 8 == 1) & (j // 8 == 1))

    same(attend(q, k, v, block_mask=mask), of_torch(q, k, v, block_mask=made(of_both, mods.S, mods.S))[0])


@on_host
def test_a_scale_of_double_precision():
    q, k, v = tensors(dtype=torch.float64)
    compare((q, k, v), scale=0.25 + 1e-9)
    assert not torch.equal(attend(q, k, v, scale=0.25 + 1e-9), attend(q, k, v))


@pytest.mark.parametrize("name", ["maximum", "clamp", "clamp_min", "fmax", "minimum"])
def test_nan_is_that_of_torch(name):
    """What gives NaN in torch gives it here."""
    table = torch.tensor([1.0, torch.nan, -1.0])
    of = {"maximum": lambda x: torch.maximum(x, x * 0 + 0.5), "clamp": lambda x: x.clamp(-0.5, 0.5),
          "clamp_min": lambda x: x.clamp_min(0.5), "fmax": lambda x: torch.fmax(x, torch.full_like(x, 0.5)),
          "minimum": lambda x: torch.minimum(x * 0 + 0.5, x)}[name]  # fmt: skip
    mod = lambda s, b, h, i, j: s + of(table[i % 3])  # noqa: E731
    q, k, v = tensors(grad=False)
    o, wanted = attend(q, k, v, mod), of_torch(q, k, v, mod)[0]
    torch.testing.assert_close(o, wanted, rtol=FINE, atol=FINE, equal_nan=True)
    assert bool(wanted.isnan().any()) == (name != "fmax")


GAIN = 0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_number_of_each_step_is_a_scalar(dtype, monkeypatch):
    """Of a closure and of a global: after a few values nothing is traced or compiled any more."""
    from lathe.torch.flex import _translation

    def call(window):
        return lambda s, b, h, i, j: s * GAIN - mods.DOCS.numel() * 0.01, lambda b, h, i, j: i - j < window

    operands = tensors(dtype=dtype)
    for step in range(9):
        monkeypatch.setitem(globals(), "GAIN", 0.5 + step / 7)
        score, mask = call(3 + step)
        compare(operands, score, made(mask, mods.S, mods.S))
        if step == 4:
            before = set(_translation._ops)
    assert set(_translation._ops) == before
    assert any("x.window" in text and "x.GAIN" in text for text in before)


def test_a_number_by_which_python_decides_stays_a_constant():
    def call(window):
        return lambda b, h, i, j: i - j < window if window > 5 else i - j < 2

    for window in range(3, 10):
        compare(tensors(), None, made(call(window), mods.S, mods.S))


def count_traces(monkeypatch):
    from lathe.torch.flex import _attention

    done = []
    trace = _attention.trace
    monkeypatch.setattr(_attention, "trace", lambda mod, *rest: (done.append(mod), trace(mod, *rest))[1])
    return done


def test_mods_are_traced_once(monkeypatch):
    done = count_traces(monkeypatch)
    q, k, v = tensors(grad=False)

    def call(table, width):  # functions that are made anew for each call
        def mod(score, b, h, q_idx, kv_idx):
            return score + table[h] * width

        return attend(q, k, v, mod, lambda b, h, q_idx, kv_idx: q_idx - kv_idx < width)

    for seed in range(3):
        call(torch.full((mods.H,), float(seed)), 3)
    assert len(done) == 2


def test_values_of_tensors_are_read_at_each_call():
    q, k, v = tensors(grad=False)
    table = torch.randn(mods.S)
    docs = mods.DOCS.clone()
    mod = lambda score, b, h, q_idx, kv_idx: score + table[kv_idx]  # noqa: E731
    mask = lambda b, h, q_idx, kv_idx: docs[q_idx] == docs[kv_idx]  # noqa: E731
    for _ in range(2):
        same(attend(q, k, v, mod, mask), of_torch(q, k, v, mod, made(mask, mods.S, mods.S))[0])
        table.normal_()
        docs.copy_(torch.randint(0, 3, (mods.S,)))


WIDTH = 3


def get_width(of):
    return of.width


def by_attribute(of=None):
    return by_attribute.width


class Settings:
    width = 3

    def __init__(self, width):
        self.width = width

    @property
    def twice(self):
        return self.width * 2

    def __call__(self, b, h, q_idx, kv_idx):
        return self.near(q_idx - kv_idx)

    def near(self, distance):
        return distance < self.width


class Odd(dict):
    def __getattr__(self, name):
        return self[name]


class Layer(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = torch.nn.Module()
        self.inner.width = width

    def forward(self, distance):
        return distance < self.inner.width


def readers():
    """Masks that read a width in many places, each with what sets it."""
    box, row, one, odd, layer = {"width": 3}, [0, 3], Settings(3), Odd(width=3), Layer(3)
    by_attribute.width = 3
    held = np.array([3])
    bend = torch.nn.Hardtanh(-1000.0, 2.0)
    layers = torch.nn.ModuleList([layer])
    local = 3

    def set_local(width):
        nonlocal local
        local = width

    def inside(b, h, i, j):
        import flex_mods

        return i - j < flex_mods.WIDTH

    mods.WIDTH = 3
    module = mods
    return {
        "global": (lambda b, h, i, j: i - j < WIDTH, lambda w: globals().update(WIDTH=w)),
        "dict": (lambda b, h, i, j: i - j < box["width"], lambda w: box.update(width=w)),
        "list": (lambda b, h, i, j: i - j < row[1], lambda w: row.__setitem__(1, w)),
        "closure": (lambda b, h, i, j: i - j < local, set_local),
        "object": (lambda b, h, i, j: i - j < one.width, lambda w: setattr(one, "width", w)),
        "property": (lambda b, h, i, j: 2 * (i - j) < one.twice, lambda w: setattr(one, "width", w)),
        "argument": (lambda b, h, i, j: i - j < get_width(one), lambda w: setattr(one, "width", w)),
        "method": (lambda b, h, i, j: one.near(i - j), lambda w: setattr(one, "width", w)),
        "callable": (lambda b, h, i, j: one(b, h, i, j), lambda w: setattr(one, "width", w)),
        "itself": (one, lambda w: setattr(one, "width", w)),
        "bound": (one.__call__, lambda w: setattr(one, "width", w)),
        "getattr": (lambda b, h, i, j: i - j < getattr(one, "width"), lambda w: setattr(one, "width", w)),
        "class": (lambda b, h, i, j: i - j < Settings.width, lambda w: setattr(Settings, "width", w)),
        "odd": (lambda b, h, i, j: i - j < odd.width, lambda w: odd.update(width=w)),
        "function": (lambda b, h, i, j: i - j < by_attribute(), lambda w: setattr(by_attribute, "width", w)),
        "array": (lambda b, h, i, j: i - j < int(held[0]), lambda w: held.__setitem__(0, w)),
        "layer": (lambda b, h, i, j: layer(i - j), lambda w: setattr(layer.inner, "width", w)),
        "torch": (lambda b, h, i, j: i - j <= bend((i - j).float()), lambda w: setattr(bend, "max_val", w - 1.0)),
        "listed": (lambda b, h, i, j: i - j < layers[0].inner.width, lambda w: setattr(layer.inner, "width", w)),
        "module": (lambda b, h, i, j: i - j < module.WIDTH, lambda w: setattr(mods, "WIDTH", w)),
        "import": (inside, lambda w: setattr(mods, "WIDTH", w)),
        "partial": (functools.partial(lambda of, b, h, i, j: i - j < of.width, one),
                    lambda w: setattr(one, "width", w)),
    }


@pytest.mark.parametrize("name", readers())
def test_numbers_that_change_are_seen(name):
    q, k, v = tensors(grad=False)
    mask, put = readers()[name]
    for width in (3, 9, 5):
        put(width)
        wide = of_torch(q, k, v, None, made(lambda b, h, i, j: i - j < width, mods.S, mods.S))[0]
        same(attend(q, k, v, block_mask=mask), wide)
    put(3)


class Weight:
    def __init__(self, w):
        self.w = w


def test_which_of_two_things_is_met_again_counts():
    q, k, v = tensors(grad=False)
    a, b = Weight(1.0), Weight(3.0)

    def scaled(first, second, last):
        return lambda s, b_, h, q_idx, kv_idx: s * last.w + 0 * first.w + 0 * second.w

    for last in (a, b, a):
        same(attend(q, k, v, scaled(a, b, last)), of_torch(q, k, v, scaled(a, b, last))[0])


def test_a_threshold_of_softplus_counts():
    q, k, v = tensors(grad=False)
    soft = torch.nn.functional.softplus
    for more in ((1.0, 0.5), (2.0, 1.0), (2.0,)):
        def mod(s, b, h, q_idx, kv_idx, more=more):
            return soft(s, *more)

        same(attend(q, k, v, mod), of_torch(q, k, v, mod)[0])


def test_a_learned_layer_is_watched(monkeypatch):
    """Its weight has a gradient, and the mod, made anew in each step, is traced once."""
    done = count_traces(monkeypatch)

    class Biased(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Embedding(2 * mods.S, mods.H)

        def forward(self, q, k, v):
            return attend(q, k, v, lambda s, b, h, q_idx, kv_idx: s + self.table.weight[q_idx - kv_idx + mods.S, h])

    layer, (q, k, v) = Biased(), tensors(grad=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            layer(q, k, v).sum().backward()
    assert len(done) == 1 and layer.table.weight.grad.abs().sum() > 0


def test_what_cannot_be_watched_is_said_once():
    q, k, v = tensors(grad=False)
    odd = Odd(width=3)
    mask = lambda b, h, q_idx, kv_idx: q_idx - kv_idx < odd.width  # noqa: E731
    with pytest.warns(UserWarning, match=r"test_torch_flex.py:\d+: `odd`, an object of Odd, cannot be watched"):
        attend(q, k, v, block_mask=mask)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        attend(q, k, v, block_mask=mask)


def test_longer_calls_are_not_traced_again(monkeypatch):
    done = count_traces(monkeypatch)
    for n in range(3, 12):
        q, k, v = tensors(1, n, grad=False)
        mod = lambda score, b, h, q_idx, kv_idx: score - kv_idx * 0.25  # noqa: E731
        same(attend(q, k, v, mod), of_torch(q, k, v, mod)[0])
    assert len(done) == 1


def test_tensors_of_earlier_calls_are_not_kept():
    import gc
    import weakref

    q, k, v = tensors(grad=False)

    def call():
        table = torch.randn(mods.H)
        attend(q, k, v, lambda score, b, h, q_idx, kv_idx: score - table[h] * kv_idx)
        return weakref.ref(table)

    gone = call()
    gc.collect()
    assert gone() is None


# ---- the text --------------------------------------------------------------------------------------------------------


def test_the_text_is_readable():
    slopes = torch.zeros(mods.H, requires_grad=True)

    def tilted(score, b, h, q_idx, kv_idx):
        distance = q_idx - kv_idx
        return torch.where(distance > 4, score - slopes[h] * distance, score)

    text = lathe.torch.spec_of(tilted, mods.causal, b=mods.B, h=mods.H, q=mods.S, kv=mods.S)
    assert "-- numbers that Python has read: window = 5\n" in lathe.torch.spec_of(None, mods.sliding_window())
    assert text.splitlines()[0].startswith("-- Translated from score_mod `tilted` (test_torch_flex.py:")
    assert text.partition("\n")[2] == """-- slopes: float32 [4]
return attention {
  inputs = {
    slopes = tensor("float", "h", { grad = true }),
  },
  mask_mod = function(at, x) return ge(at.q, at.kv) end,
  score_mod = function(s, at, x)
    local distance = at.q - at.kv
    return where(gt(distance, 4), s - x.slopes(at.h) * distance, s)
  end,
}
"""
    assert lathe.compile(text).check().passed


@pytest.mark.parametrize("name", ["document_of", "shared_prefix", "flamingo", "natten", "block_diffusion", "by_head"])
def test_the_text_of_a_mask_is_sound(name):
    n_q, n_kv = mods.LENGTHS.get(name, (mods.S, mods.S))
    text = lathe.torch.spec_of(None, mods.MASKS[name](), b=mods.B, h=mods.H, q=n_q, kv=n_kv)
    assert [p for p in lathe.compile(text).check() if p.warned or p.unseen or not p.passed] == []


def code_of(op, shapes, backward, more):
    """Generated code without comments and names of files."""
    import re

    made = op.source(*shapes, arch="sm_90a", backward=backward, **more, **({"do": shapes[0]} if backward else {}))
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", made, flags=re.S)
    return re.sub(r"flex_attention|by_hand|document", "NAME", text)


def document():
    doc = torch.zeros(1, 256, dtype=torch.int32)
    return lambda b, h, q_idx, kv_idx: (q_idx >= kv_idx) & (doc[b, q_idx] == doc[b, kv_idx])


HAND = {
    "causal": (None, lambda: mods.causal, "return attention { mask_mod = causal }"),
    "alibi": (mods.alibi, None, """return attention {
        score_mod = function(s, at) return s + (at.kv - at.q) * exp2(-((at.h + 1) * 8.0 / 4.0)) end }"""),
    "softcap": (mods.softcap, None, "return attention { score_mod = function(s) return 30.0 * tanh(s / 30.0) end }"),
    "window": (None, mods.sliding_window, """return attention {
        mask_mod = both(causal, function(at) return lt(at.q - at.kv, 5) end) }"""),
    "documents": (None, document, None),  # the spec that ships
}  # fmt: skip


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("name", HAND)
def test_the_kernel_is_that_of_a_spec_by_hand(name, backward):
    score, mask, text = HAND[name]
    translated = lathe.torch.spec_of(score()[0] if score else None, mask() if mask else None, b=1, h=4, q=256, kv=256)
    shapes = [lathe.Shaped((1, 4, 256, 64), "bf16") for _ in range(3)]
    more = {} if text else {"doc": lathe.Shaped((1, 256), "i32")}
    by_hand = lathe.compile(text, "by_hand.lua") if text else lathe.load("document")
    one = code_of(lathe.compile(translated, "flex_attention.lua"), shapes, backward, more)
    assert one == code_of(by_hand, shapes, backward, more)


# ---- what is refused -------------------------------------------------------------------------------------------------


def refused(mod, *parts, mask=False):
    """With the file and the line behind the first of the mod."""
    with pytest.raises(lathe.SpecError) as error:
        attend(*tensors(grad=False), *([None, mod] if mask else [mod]))
    line = mod.__code__.co_firstlineno
    assert error.value.file == mod.__code__.co_filename and line <= error.value.line <= line + 4
    for part in (f"test_torch_flex.py:{error.value.line}: ", *parts):
        assert part in str(error.value)


def test_python_on_values_is_refused():
    def chosen(b, h, q_idx, kv_idx):
        if q_idx > kv_idx:
            return q_idx > 3
        return kv_idx > 3

    refused(chosen, "read in Python", "torch.where(condition, a, b)", mask=True)
    table = torch.tensor([1.0, 2.0])
    refused(lambda s, b, h, q, kv: s * table[0].item(), "read in Python")
    refused(lambda s, b, h, q, kv: s * table.tolist()[0], "read in Python")
    refused(lambda s, b, h, q, kv: s * float(q), "read in Python")


def test_writes_are_refused():
    table = torch.zeros(mods.H)

    def writes(s, b, h, q, kv):
        table[h] = 1.0
        return s

    refused(writes, "writes into a tensor")

    def adds(s, b, h, q, kv):
        table.add_(1.0)
        return s + table[h]

    refused(adds, "writes into a tensor")
    assert table.eq(0).all()


def test_unknown_operations_are_refused():
    refused(lambda s, b, h, q, kv: torch.special.bessel_j0(s), "bessel_j0", "no formula")
    refused(lambda s, b, h, q, kv: s + torch.rand(()), "random numbers")
    rows = torch.randn(mods.S, 8)
    refused(lambda s, b, h, q, kv: s + torch.dot(rows[q], rows[kv]), "of rows", "qk2 = true")
    refused(lambda s, b, h, q, kv: s + rows[q, :].sum(), "a slice")
    refused(lambda s, b, h, q, kv: s + rows[q, q >= kv], "torch.where")
    refused(lambda s, b, h, q, kv: torch.max(s.reshape(1), dim=0)[0], "no formula")
    refused(lambda s, b, h, q, kv: torch.cond(q > kv, lambda a: a * 2, lambda a: a, (s,)), "torch.where")
    refused(lambda s, b, h, q, kv: s + (rows * q).sum(), "values of a pair")


class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.floor(x)

    @staticmethod
    def backward(ctx, g):
        return g


def test_derivatives_by_hand_are_refused():
    refused(lambda s, b, h, q, kv: Rounded.apply(s), "a derivative of its own")


def test_numbers_that_would_differ_are_refused():
    refused(lambda s, b, h, q, kv: s // 0.3, "torch.floor(a / b)")
    refused(lambda s, b, h, q, kv: s % 0.3, "torch.floor(a / b)")
    refused(lambda s, b, h, q, kv: s + (q * 100_000_000), "32 bits")
    refused(lambda s, b, h, q, kv: s + (q + 5_000_000_000) % 7, "32 bits")
    refused(lambda s, b, h, q, kv: s + q.to(torch.int8) * 100, "int8 may wrap around")
    refused(lambda s, b, h, q, kv: s.to(torch.bfloat16) + 0.1, "a cast to bfloat16")
    refused(lambda s, b, h, q, kv: s.double() + 0.1, "float64")
    wide = torch.zeros(mods.S, dtype=torch.float64)
    refused(lambda s, b, h, q, kv: s + wide[q], "float64", ".float()")
    bits = torch.zeros(mods.S, dtype=torch.int64)
    refused(lambda b, h, q, kv: (bits[q] >> (kv % 32)) & 1 == 1, "make it torch.int32", mask=True)


def test_a_file_is_translated(tmp_path, capsys, monkeypatch):
    from lathe.__main__ import main

    (tmp_path / "mine.py").write_text("def near(b, h, q, kv):\n    return q - kv < 4\n\n\ndef bad(b, h, q, kv):\n"
                                      "    return q if q > 1 else kv\n")  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main(["translate", "mine.py:near", "q=64", "kv=64"]) == 0
    assert "mask_mod = function(at, x) return lt(at.q - at.kv, 4) end" in capsys.readouterr().out
    assert main(["translate", "mine.py:bad"]) == 1
    assert "mine.py:6: a value of a tensor is read in Python" in capsys.readouterr().err
    for word, told in (("mine", "expected FILE.py:NAME"), ("mine.py:n", "has no n"), ("no.py:x", "no file no.py")):
        assert main(["translate", word]) == 1
        assert told in capsys.readouterr().err
