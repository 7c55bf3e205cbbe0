"""Ops on NumPy arrays: results, gradients, layouts, shapes of every kind, and what is refused."""

import os
import re
import subprocess

import lathe
import numpy as np
import pytest
from attention import attention, causal


def near(given, wanted, error=2e-6):
    np.testing.assert_allclose(given, wanted, rtol=error, atol=error)


# ---- results -------------------------------------------------------------------------------------------------------


def test_attention_of_a_shipped_spec(qkv):
    o, lse = lathe.load("causal")(*qkv, lse=True)
    wanted_o, wanted_lse = attention(*qkv, causal)
    assert o.dtype == lse.dtype == np.float32
    near(o, wanted_o)
    near(lse, wanted_lse)


def test_one_result_comes_alone_and_by_name(qkv):
    q, k, v = qkv
    op = lathe.load("causal")
    near(op(q=q, v=v, k=k), op(q, k, v))


def test_parts_of_rows_are_one_call_over_all_keys(qkv, rng):
    op = lathe.load("sinks")
    for dtype in (np.float32, np.float64):
        q, k, v = (x.astype(dtype) for x in qkv)
        sink = rng.standard_normal(4).astype(np.float32)
        whole = op(q, k, v, sink=sink, lse=True)
        cuts = [(5, 12), (5, 5), (0, 5)]
        parts = [op.parts(q, k[:, :, a:b], v[:, :, a:b], sink=sink, q_start=3 - a) for a, b in cuts]
        assert parts[0].part_o.shape == q.shape and parts[0].part_rows.shape == (*q.shape[:3], 3)
        assert not parts[1].part_rows[..., 2].any()  # of no keys
        joined = op.combine(np.stack([p.part_o for p in parts]), np.stack([p.part_rows for p in parts]), sink, lse=True)
        assert joined.o.dtype == dtype
        near(joined.o, whole.o)
        near(joined.lse, whole.lse)
        first = op.merge(*(np.stack(p) for p in zip(*parts[:2])), sink)  # as they come
        assert first.merged_o.shape == q.shape and first.merged_rows.shape == (*q.shape[:3], 3)
        joined = op.combine(*(np.stack(p) for p in zip(first, parts[2])), sink, lse=True)
        near(joined.o, whole.o)
        near(joined.lse, whole.lse)


def test_parts_of_keys_and_heads_have_their_places():
    op = lathe.load("alibi")
    rng = np.random.default_rng(5)
    q, k, v = (rng.standard_normal((1, 4, n, 16)).astype(np.float32) for n in (5, 24, 24))
    whole = op(q, k, v)
    heads = [op(q[:, h : h + 2], k[:, h : h + 2], v[:, h : h + 2], h_start=h, n_h=4) for h in (0, 2)]
    near(np.concatenate(heads, 1), whole)
    parts = [op.parts(q, k[:, :, a:b], v[:, :, a:b], kv_start=a, len_kv=24) for a, b in ((0, 7), (7, 24))]
    near(op.combine(np.stack([p.part_o for p in parts]), np.stack([p.part_rows for p in parts])), whole)
    with pytest.raises(lathe.ArgumentError, match="expected 'len_kv' beside it"):
        op(q, k, v, kv_start=3)


def test_parts_of_keys_are_of_each_sequence():
    op = lathe.load("alibi")
    rng = np.random.default_rng(6)
    q, k, v = (rng.standard_normal((2, 4, n, 16)).astype(np.float32) for n in (5, 24, 24))
    whole = op(q, k, v)
    pack = lambda x: np.concatenate(list(x), 1)[None]
    joined = lambda parts: op.combine(np.stack([p.part_o for p in parts]), np.stack([p.part_rows for p in parts]))
    cuts = ((0, 7), (7, 24))
    starts = lambda n: np.array([0, n, 2 * n], np.int32)
    packed = [op.parts(pack(q), pack(k[:, :, a:b]), pack(v[:, :, a:b]), cu_q=starts(5), cu_kv=starts(b - a), q_start=19,
                       kv_start=a, len_kv=24) for a, b in cuts]  # fmt: skip
    near(joined(packed), pack(whole))
    room = lambda x, a, b: np.concatenate([x[:, :, a:b], np.full((2, 4, 40 - b + a, 16), np.nan, np.float32)], 2)
    used = [op.parts(q, room(k, a, b), room(v, a, b), used_kv=np.full(2, b - a, np.int32), q_start=19, kv_start=a,
                     len_kv=24) for a, b in cuts]  # fmt: skip
    near(joined(used), whole)
    with pytest.raises(lathe.ArgumentError, match="argument 'kv_start': expected from 0 to len_kv=24, given 25"):
        op.parts(pack(q), pack(k[:, :, 7:]), pack(v[:, :, 7:]), cu_q=starts(5), cu_kv=starts(17), q_start=19,
                 kv_start=25, len_kv=24)  # fmt: skip


def test_what_has_no_parts_says_why():
    x = np.ones((2, 8), np.float32)
    with pytest.raises(lathe.ArgumentError, match="no combine pass: it puts parts of rows of attention together"):
        lathe.load("rms_norm").combine(x, x)
    with pytest.raises(lathe.ArgumentError, match="no combine pass"):
        lathe.load("rms_norm").parts(x)
    with pytest.raises(lathe.ArgumentError, match="no combine pass"):
        lathe.load("rms_norm").merge(x, x)
    with pytest.raises(lathe.ArgumentError, match="argument 'part_o': expected shape"):
        lathe.load("causal").combine(np.ones((1, 2, 3, 4), np.float32), np.ones((1, 1, 2, 3, 3), np.float32))


def test_compile_from_text_with_inputs(qkv):
    text = """return attention {
      inputs = { slopes = tensor("f32", "h"), gain = scalar("f32", { default = 2.0 }) },
      score_mod = function(s, at, x) return s * x.gain - x.slopes(at.h) * (at.q - at.kv) end,
    }"""
    q, k, v = qkv
    slopes = np.array([0.5, 0.25, 0.125, 0.0], np.float32)
    op = lathe.compile(text, "slopes.lua")
    assert op.name == "slopes" and op.kind == "attention"
    distance = (np.arange(9)[:, None] + 3 - np.arange(12)[None, :]).astype(np.float64)
    for gain, given in ((2.0, {}), (0.5, {"gain": 0.5})):
        kr, vr = np.repeat(k, 2, 1), np.repeat(v, 2, 1)
        scores = np.float64(q) @ kr.swapaxes(2, 3) / 4 * gain - slopes[:, None, None] * distance
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        near(op(q, k, v, slopes=slopes, **given), weights / weights.sum(-1, keepdims=True) @ vr)


def test_rowwise_takes_any_number_of_leading_dims(rng):
    op = lathe.load("rms_norm")
    for shape in ((24,), (5, 24), (3, 5, 24), (2, 3, 5, 24)):
        x = rng.standard_normal(shape).astype(np.float32)
        gain = rng.standard_normal(24).astype(np.float32)
        names = [a.name for a in op.arguments]
        given = {"weight": gain} if "weight" in names else {}
        y = op(x, **given)
        y = y if isinstance(y, np.ndarray) else y.y
        assert y.shape == shape
        plain = x / np.sqrt(np.mean(np.square(x, dtype=np.float64), -1, keepdims=True) + 1e-6)
        near(y, plain * (gain if given else 1.0), 2e-5)


def test_elementwise(rng):
    gate, up = (rng.standard_normal((4, 6)).astype(np.float32) for _ in range(2))
    near(lathe.load("glu")(gate, up), up / (1 + np.exp(-np.float64(gate))))


IN_PLACE = """return elementwise {
  over = { "rows", "n" }, inputs = { rate = scalar("f32") },
  operands = { p = tensor("float"), g = tensor("float", "n") },
  results = { p_new = tensor("float", { alias = "p" }) },
  forward = function(v, at, x) return v.p - x.rate * v.g end,
}"""


def test_a_result_with_an_alias(rng):
    op = lathe.compile(IN_PLACE)
    p, g = rng.standard_normal((3, 5)).astype(np.float32), rng.standard_normal(5).astype(np.float32)
    before = p.copy()
    apart = op(p=p, g=g, rate=0.5, p_new=True)
    near(p, before, 0)
    near(apart, before - 0.5 * g)
    assert op(p=p, g=g, rate=0.5) is p
    near(p, apart, 0)
    x = rng.standard_normal((3, 5)).astype(np.float32)
    kept = x.copy()
    y = lathe.load("act_silu")(x=x, y=True)
    near(x, kept, 0)
    lathe.load("act_silu")(x=x)
    near(x, y, 0)


def test_what_is_written_over_can_be_written_over():
    silu = lathe.load("act_silu")
    x = np.ones((1, 3), np.float32)
    x.flags.writeable = False
    for given in (x, np.broadcast_to(x, (2, 3))):
        with pytest.raises(lathe.ArgumentError, match="'x': expected an array that can be written, given one that is"):
            silu(given)
        near(silu(given, y=True), given / (1 + np.exp(-given)))
    near(x, np.ones((1, 3)), 0)
    rows = np.lib.stride_tricks.as_strided(np.ones(3, np.float32), (2, 3), (0, 4))
    with pytest.raises(lathe.ArgumentError, match="'x': 'y' is left out and would be written over it: .* stride 0 in"):
        silu(rows)


def test_linear_attention(rng):
    q, k, v = (rng.standard_normal((1, 2, 7, 16)).astype(np.float32) for _ in range(3))
    near(
        lathe.load("linear")(q, k, v),
        np.tril(np.float64(q) @ k.swapaxes(2, 3)) @ v / 4,
    )


def test_packed_sequences(qkv):
    q, k, v = (a[:1] for a in qkv)
    cu = np.array([0, 4, 9], np.int32)
    k, v = k[:, :, :9], v[:, :, :9]
    o, lse = lathe.load("causal")(q, k, v, cu_q=cu, lse=True)
    for first, last in ((0, 4), (4, 9)):
        part = (a[:, :, first:last] for a in (q, k, v))
        wanted, wanted_lse = attention(*part, causal)
        near(o[:, :, first:last], wanted)
        near(lse[:, :, first:last], wanted_lse)


def test_a_second_pair_goes_on_where_the_first_ends(qkv, rng):
    q, k, v = (x.astype(np.float64) for x in qkv)
    cut = q.shape[-1] // 2
    whole, apart = lathe.load("causal"), lathe.compile("return attention { qk2 = true, mask_mod = causal }")
    near(apart(q[..., :cut], k[..., :cut], v, q[..., cut:], k[..., cut:]), whole(q, k, v))
    do = rng.standard_normal(whole(q, k, v).shape)
    given = apart.backward(q[..., :cut], k[..., :cut], v, q2=q[..., cut:], k2=k[..., cut:], do=do)
    wanted = whole.backward(q, k, v, do=do)
    near(np.concatenate([given.dq, given.dq2], -1), wanted.dq)
    near(np.concatenate([given.dk, given.dk2], -1), wanted.dk)
    near(given.dv, wanted.dv)
    latent = lathe.load("mla_decoupled")(q[..., :cut], k[..., :cut], q[..., cut:], k[..., cut:])
    assert latent.shape == (*q.shape[:3], cut)


def test_keys_in_pages(qkv):
    q, k, v = qkv
    n, h_kv, kv, d = k.shape
    page, used = 4, np.array([kv, kv - 3] * n, np.int32)[:n]
    most = -(-kv // page)
    table = np.arange(n * most, dtype=np.int32)[::-1].reshape(n, most).copy()
    pools = [np.full((n * most + 1, page, h_kv, d), np.nan, k.dtype) for _ in range(2)]  # tokens before heads
    for pool, a in zip(pools, (k, v)):
        for b in range(n):
            for j in range(used[b]):
                pool[table[b, j // page], j % page] = a[b, :, j]
    pools = [p.transpose(0, 2, 1, 3) for p in pools]
    o = lathe.load("causal")(q, *pools, pages=table, used_kv=used)
    for b in range(n):
        part = (a[b : b + 1, :, : used[b]] for a in (k, v))
        near(o[b : b + 1], attention(q[b : b + 1], *part, causal)[0])
    with pytest.raises(lathe.ArgumentError, match="'pages': expected pages from 0 to"):
        lathe.load("causal")(q, *pools, pages=table + 2, used_kv=used)


def test_gradients_of_keys_in_pages(rng):
    """Where the keys lie, and added where two sequences have a page in common."""
    table, used = np.array([[2, 0, 5], [2, 4, 6], [1, 3, 7]], np.int32), np.array([12, 7, 0], np.int32)
    q, do = (rng.standard_normal((3, 4, 5, 8)) for _ in range(2))
    pools = [rng.standard_normal((9, 2, 4, 8)) for _ in range(2)]
    causal = lathe.load("causal")
    found = causal.backward(q, *pools, do=do, pages=table, used_kv=used)
    in_rows = (np.stack([np.concatenate([pool[i] for i in line], 1) for line in table]) for pool in pools)
    dense = causal.backward(q, *in_rows, do=do, used_kv=used)
    near(found.dq, dense.dq)
    for pool, rows in ((found.dk, dense.dk), (found.dv, dense.dv)):
        wanted = np.zeros_like(pool)
        for b, line in enumerate(table):
            for m, page in enumerate(line):
                wanted[page] += rows[b, :, 4 * m : 4 * m + 4]
        near(pool, wanted)
        assert np.any(wanted[2]) and not np.any(pool[[1, 3, 6, 7, 8]]) and not np.any(pool[4, :, 3])
    mine = [np.full((9, 4, 2, 8), np.nan).transpose(0, 2, 1, 3) for _ in range(2)]  # of other strides than k and v
    causal.backward(q, *pools, do=do, pages=table, used_kv=used, dk=mine[0], dv=mine[1])
    near(mine[0], found.dk)
    near(mine[1], found.dv)


# ---- layouts -------------------------------------------------------------------------------------------------------


def test_strides_are_free(qkv):
    q, k, v = qkv
    wanted = lathe.load("causal")(q, k, v)
    turned = [np.ascontiguousarray(a.swapaxes(1, 2)).swapaxes(1, 2) for a in (q, k, v)]  # [b, s, h, d] in memory
    assert not turned[0].flags.c_contiguous
    near(lathe.load("causal")(*turned), wanted, 0)
    wide = np.zeros((*q.shape[:3], 32), np.float32)
    wide[..., ::2] = q
    near(lathe.load("causal")(wide[..., ::2], k, v), wanted, 0)
    one = np.broadcast_to(k[:, :1], k.shape)
    near(lathe.load("causal")(q, one, v), lathe.load("causal")(q, one.copy(), v), 0)


def test_results_are_written_where_they_are_given(qkv):
    op = lathe.load("causal")
    place = np.zeros((2, 9, 4, 16), np.float32).swapaxes(1, 2)
    assert op(*qkv, o=place) is place
    near(place, op(*qkv))
    place.flags.writeable = False
    with pytest.raises(lathe.ArgumentError, match="'o': expected an array that can be written"):
        op(*qkv, o=place)


def test_half_precision(qkv):
    halves = [a.astype(np.float16) for a in qkv]
    o = lathe.load("causal")(*halves)
    assert o.dtype == np.float16
    near(o, attention(*halves, causal)[0], 2e-3)


class OnlyDLPack:
    """An array that is known by its capsule alone."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **_):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_dlpack(qkv):
    near(lathe.load("causal")(*map(OnlyDLPack, qkv)), lathe.load("causal")(*qkv), 0)


def test_many_shapes_through_one_op(rng):
    op = lathe.load("causal")
    for n in (1, 3, 8, 3, 1):
        q, k, v = (rng.standard_normal((1, 1, n, 8)).astype(np.float32) for _ in range(3))
        near(op(q, k, v), attention(q, k, v, causal)[0])


def test_threads_share_an_op(rng):
    from concurrent.futures import ThreadPoolExecutor

    op = lathe.load("causal")
    sets = [[rng.standard_normal((1, 2, 6, 8)).astype(np.float32) for _ in range(3)] for _ in range(40)]
    with ThreadPoolExecutor(8) as pool:
        for given, o in zip(sets, pool.map(lambda s: op(*s), sets)):
            near(o, attention(*given, causal)[0])


# ---- gradients -------------------------------------------------------------------------------------------------------


def test_gradients_against_differences(rng):
    op = lathe.load("softcap")
    q, k, v, seed = (rng.standard_normal((1, 1, 5, 8)) for _ in range(4))
    dq, dk, dv = op.backward(q, k, v, do=seed)
    step = 1e-6
    for array, gradient in ((q, dq), (k, dk), (v, dv)):
        place = (0, 0, 2, 3)
        kept = array[place]
        array[place] = kept + step
        above = (op(q, k, v) * seed).sum()
        array[place] = kept - step
        below = (op(q, k, v) * seed).sum()
        array[place] = kept
        near(gradient[place], (above - below) / (2 * step), 1e-7)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_shards_of_keys_with_the_o_and_lse_of_the_whole(rng, dtype):
    op = lathe.load("full")
    q, do = (rng.standard_normal((2, 4, 5, 8)).astype(dtype) for _ in range(2))
    k, v = (rng.standard_normal((2, 2, 9, 8)).astype(dtype) for _ in range(2))
    o, lse = op(q, k, v, lse=True)
    whole = op.backward(q, k, v, do=do)
    shard = [op.backward(q, k[:, :, s], v[:, :, s], o=o, lse=lse, do=do) for s in (slice(0, 4), slice(4, 9))]
    near(shard[0].dq + shard[1].dq, whole.dq)
    near(np.concatenate([s.dk for s in shard], 2), whole.dk)
    near(np.concatenate([s.dv for s in shard], 2), whole.dv)
    with pytest.raises(lathe.LatheError, match="expected that of these keys"):
        op.backward(q, k[:, :, :4], v[:, :, :4], lse=lse, do=do)  # without o nothing says what delta is


def test_statistics_that_are_given_count(rng):
    x, dy = (rng.standard_normal((3, 8)) for _ in range(2))
    op = lathe.load("rms_norm")
    weight = np.ones(8)
    rstd = op(x, weight=weight, rstd=True).rstd
    near(op.backward(x, weight=weight, dy=dy, rstd=rstd).dx, op.backward(x, weight=weight, dy=dy).dx)
    near(op.backward(x, weight=weight, dy=dy, rstd=2 * rstd).dweight, 2 * op.backward(x, weight=weight, dy=dy).dweight)
    op = lathe.load("log_softmax")
    lse = op(x, lse=True).lse
    near(op.backward(x, dy=dy, lse=lse + 1), dy - np.exp(x - lse[:, None] - 1) * dy.sum(1, keepdims=True))


def test_only_the_gradients_that_are_wanted(qkv):
    seed = np.ones((2, 4, 9, 16), np.float32)
    op = lathe.load("causal")
    dk = op.backward(*qkv, do=seed, dk=True)
    near(dk, op.backward(*qkv, do=seed).dk)


def test_gradient_of_an_input(qkv):
    text = """return attention {
      inputs = { slopes = tensor("f32", "h", { grad = true }) },
      score_mod = function(s, at, x) return s + x.slopes(at.h) * (at.kv - at.q) end,
    }"""
    q, k, v = (a.astype(np.float64) for a in qkv)
    op, slopes, seed = lathe.compile(text), np.array([0.3, 0.1, 0.0, 0.2]), np.ones((2, 4, 9, 16))
    gradient = op.backward(q, k, v, slopes=slopes, do=seed, dslopes=True)
    step = np.array([0, 1e-6, 0, 0])
    wanted = (op(q, k, v, slopes=slopes + step) - op(q, k, v, slopes=slopes - step)).sum() / 2e-6
    near(gradient[1], wanted, 1e-6)


# ---- what it tells ---------------------------------------------------------------------------------------------------


def test_check_tells_sound_from_wrong():
    report = lathe.load("causal").check()
    assert report.passed and any(p.name == "gradients" and p.applies for p in report)
    assert "online = whole row" in str(report)
    wrong = lathe.compile("""return attention { online_func = online_func {
      online_rowscales = { l = 0.0 },
      online_fwd = function(s, r) local p = exp(s) return p, { l = rowsum(p) }, 1.0 end,
      online_fwd_epilogue = function(r) return 1.0 / r.l, { l = r.l } end,
      forward = function(s, final) return exp(s) / final.l end } }""")
    assert not wrong.check().passed


UNSEEN = "return attention { score_mod = function(s)\n  return where(gt(s, 1e30), 0.0, s) end }"
SHORT = """return attention { inputs = { b = tensor("f32", "h", 64) },
  score_mod = function(s, at, x) return s + x.b(at.h, at.q - at.kv) end, mask_mod = causal }"""


@pytest.mark.parametrize(("text", "flag"), [(UNSEEN, "unseen"), (SHORT, "warned")])
def test_check_has_the_words_of_the_tool(text, flag, tmp_path):
    path = tmp_path / "spec.lua"
    path.write_text(text)
    report = lathe.load(path).check()
    tool = subprocess.run([os.environ["LATHE_TOOL"], "check", path], capture_output=True, text=True, check=True)
    for line, proof in zip(tool.stdout.splitlines(), report, strict=True):
        words = re.sub(r" \(\S*spec\.lua:(\d+)\)$", r" (line \1)", line[17:])
        assert str(lathe.Report([proof])) == words.rstrip()
    assert report.passed and any(getattr(p, flag) for p in report)
    assert ("not seen " if flag == "unseen" else " warn ") in str(report)


def test_source_of_a_kernel():
    op = lathe.load("softcap")
    q = lathe.Shaped((1, 8, 128, 64), "bf16")
    portable, hopper = op.source(q, q, q), op.source(q, q, q, arch="sm_90a")
    assert portable.startswith("// softcap_attention_fwd_sm80_bf16_d64") and "tanh" in portable
    assert "wgmma" in hopper and "wgmma" not in portable
    assert "_bwd_" in op.source(q, q, q, do=q, dq=True, backward=True)


def test_explain():
    q = lathe.Shaped((1, 8, 128, 64), "bf16")
    text = lathe.load("causal").explain(q, q, q, arch="sm_90a")
    assert "template      attention_fwd_sm90" in text and "kernel" in text
    facts = lathe.load("causal").explain(q, q, q, do=q, backward=True, json=True)
    assert facts["pass"] == "backward" and facts["served"] and facts["template"] == "attention_bwd_sm80"
    assert facts["kernels"][0]["threads"] > 0 and [a["name"] for a in facts["arguments"]][:3] == ["q", "k", "v"]
    single = lathe.Shaped((1, 8, 128, 64), "f32")
    facts = lathe.load("causal").explain(single, single, single, json=True)
    assert facts["served"] and facts["template"] == "attention_fwd_sm80"
    facts = lathe.load("causal").explain(single, single, single, do=single, backward=True, json=True)
    assert facts["served"] and facts["template"] == "attention_bwd_sm80"
    double = lathe.Shaped((1, 8, 128, 64), "f64")
    refused = lathe.load("causal").explain(double, double, double, json=True)
    assert not refused["served"] and any("attention_fwd_sm80" in line for line in refused["not_chosen"])


def test_parameters_of_a_spec(qkv):
    text = """local W = param("W", 4)
    return attention { mask_mod = function(at) return ge(at.q, at.kv) & lt(at.q - at.kv, W) end }"""
    q, k, v = qkv
    for op, width in ((lathe.compile(text), 4), (lathe.compile(text, W=2), 2)):
        assert op.params == {"W": width}
        near(op(q, k, v), attention(q, k, v, lambda i, j: (i >= j) & (i - j < width))[0])
    assert lathe.load("softcap", CAP=20).params == {"CAP": 20.0}
    assert lathe.compile(text).digest != lathe.compile(text, W=2).digest
    with pytest.raises(lathe.SpecError, match="parameter 'V': this spec has none of that name; it has W"):
        lathe.compile(text, V=2)
    with pytest.raises(lathe.ArgumentError, match="parameter 'W': expected a number"):
        lathe.compile(text, W="wide")


def test_reference_is_in_double_precision(qkv):
    halves = [a.astype(np.float16) for a in qkv]
    o = lathe.load("causal").reference(*halves)
    assert o.dtype == np.float64
    near(o, attention(*halves, causal)[0], 1e-12)


def test_arguments_as_data():
    op = lathe.load("causal")
    q = op.arguments[0]
    assert (q.name, q.shape_text, q.dtype_text, q.optional) == ("q", "[b, h, q, d]", "float", False)
    assert "[seqs+1]" in [a.shape_text for a in op.arguments if a.name == "cu_q"]
    assert op.has_backward and [a.name for a in op.gradient.results] == ["dq", "dk", "dv"]


def biased():
    return lathe.compile(
        'return attention { inputs = { bias = tensor("f32", "h") },'
        " score_mod = function(s, at, x) return s * x.bias(at.h) end }"
    )


def test_arguments_are_readable():
    assert "<bias [h] f32>" in repr(biased().arguments)
    assert "f16" in lathe.load("causal").explain(*[lathe.Shaped((1, 4, 64, 64), np.float16)] * 3)


def test_paths_are_bytes_too():
    assert lathe.load(b"causal").name == "causal"


# ---- what is refused -------------------------------------------------------------------------------------------------


def test_mistakes_of_a_spec_have_a_place():
    with pytest.raises(lathe.SpecError, match="'if' cannot be traced") as caught:
        lathe.compile("return attention {\n score_mod = function(s) if s then return s end end }", "mine.lua")
    assert caught.value.line == 2 and caught.value.file == "mine.lua"
    with pytest.raises(lathe.SpecError, match="did you mean 'causal'"):
        lathe.load("causall")


@pytest.mark.parametrize(
    "change, sentence",
    [
        (lambda q, k, v: op_call(q, k), "argument 'v': missing; expected shape"),
        (lambda q, k, v: op_call(q, k, v[:, :, :5]), "argument 'v': expected shape"),
        (lambda q, k, v: op_call(q, k, v.astype(np.float16)), "argument 'v': expected dtype f32 as of 'q', given f16"),
        (lambda q, k, v: op_call(q, k, v, slope=1.0), "argument 'slope': unknown name; causal takes q, k, v"),
        (lambda q, k, v: op_call(q, k, v, q=q), "argument 'q': given twice"),
        (lambda q, k, v: op_call(q, k, v, v), "at most 3 tensors by position"),
        (lambda q, k, v: op_call(q, k, "v"), "argument 'v': expected a tensor"),
        (lambda q, k, v: op_call(q, k, v.astype(np.int64)), "argument 'v': expected dtype"),
        (lambda q, k, v: op_call(q, k, v, o=q[:, :, ::-1]), "argument 'o': expected strides >= 0"),
        (lambda q, k, v: op_call(q, k, v, q_start="here"), "argument 'q_start': expected a whole number"),
        (lambda q, k, v: op_call(lathe.Shaped(q.shape, "f32"), k, v), "expected a tensor with data"),
        (lambda q, k, v: lathe.load("causal").explain(lathe.Shaped(q.shape, np.floating), k, v), "given floating"),
        (lambda q, k, v: lathe.Context("gpu"), "device: expected 'auto', 'host' or 'cuda:N'"),
        (lambda q, k, v: lathe.Context(0), "device: expected 'auto', 'host' or 'cuda:N', given 0"),
        (lambda q, k, v: op_call(q, k, v, context="host"), "context: expected a lathe.Context"),
        (lambda q, k, v: lathe.set_context("host"), "context: expected a lathe.Context"),
        (lambda q, k, v: lathe.Context("host", deterministic="all"), "deterministic: expected False, True or 'batch'"),
        (lambda q, k, v: lathe.compile(b"return 1"), "text: expected a str, the text of a spec, given bytes"),
        (lambda q, k, v: op_call(q, k, v, q_strat=1), "did you mean 'q_start'?"),
        (lambda q, k, v: op_call(q, k, v, contxt=None), "did you mean 'context'?"),
        (lambda q, k, v: op_call(q, k, v, context=0), "context: expected a lathe.Context"),
        (lambda q, k, v: biased().backward(q, k, v, bias=q[0, :, 0, 0], do=q, dbias=True), "'bias' has no gradient"),
    ],
)
def test_calls_that_are_refused(qkv, change, sentence):
    import re

    with pytest.raises(lathe.ArgumentError, match=re.escape(sentence)):
        change(*qkv)


def op_call(*args, **named):
    return lathe.load("causal")(*args, **named)


def test_what_no_kernel_computes_says_why():
    q = lathe.Shaped((1, 8, 128, 64), "f64")
    with pytest.raises(lathe.UnsupportedError, match="attention_fwd_sm80"):
        lathe.load("causal").source(q, q, q)
