"""Operands as users have them: strides that no kernel reads, integers of 64 bits; results by default."""

import lathe
import numpy as np
import pytest


def near(given, wanted, error=2e-6):
    np.testing.assert_allclose(given, wanted, rtol=error, atol=error)


# ---- strides ---------------------------------------------------------------------------------------------------------


def test_strides_that_no_kernel_reads_are_copied(rng, qkv):
    norm, silu, attend = lathe.load("rms_norm"), lathe.load("act_silu"), lathe.load("causal")
    wide = rng.standard_normal((4, 16)).astype(np.float32)
    w = np.ones(8, np.float32)
    one = np.broadcast_to(wide[:, :1], (4, 8))
    for x in (wide[:, ::2], wide[:, 8:][:, ::-1], wide[::-1, :8], one, wide.T[:8, :].T):
        for _ in range(2):  # prepared, then known
            near(norm(x, w), norm(x.copy(), w), 0)
            near(norm.backward(x, weight=w, dy=x).dx, norm.backward(x.copy(), weight=w, dy=x.copy()).dx, 0)
            near(silu(x=x, y=True), silu(x=x.copy(), y=True), 0)
    q, k, v = qkv
    near(attend(q[:, :, ::-1], k, v[..., ::-1]), attend(q[:, :, ::-1].copy(), k, v[..., ::-1].copy()), 0)
    assert "rms_norm" in norm.explain(wide[:, ::2], w)
    assert "rms_norm" in norm.source(wide[:, ::2], w)


def test_what_is_written_is_never_copied(rng):
    wide = rng.standard_normal((4, 16)).astype(np.float32)
    with pytest.raises(lathe.ArgumentError, match="argument 'y': expected last stride 1, given 2"):
        lathe.load("rms_norm")(wide[:, :8], np.ones(8, np.float32), y=wide[:, ::2])
    with pytest.raises(lathe.ArgumentError, match="argument 'x': expected strides >= 0"):
        lathe.load("act_silu")(x=wide[:, ::-1])  # in its place


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


# ---- dtypes ----------------------------------------------------------------------------------------------------------


def test_integers_of_other_widths(rng):
    x = rng.standard_normal((3, 5)).astype(np.float32)
    loss = lathe.load("cross_entropy")
    wanted = -np.log(softmax(x.astype(np.float64))[np.arange(3), [4, 0, 2]])
    for dtype in (np.int64, np.int16, np.int8, np.uint8, np.uint32, np.uint64):
        near(loss(x, np.array([4, 0, 2], dtype), loss=True), wanted)
    with pytest.raises(lathe.ArgumentError, match=r"'target': expected numbers from -2147483648 .* given 4294967296"):
        loss(x, np.array([4, 2**32, 2]), loss=True)
    with pytest.raises(lathe.ArgumentError, match=r"'x': expected dtype .* given int64.*astype"):
        loss(np.ones((3, 5), np.int64), np.array([4, 0, 2]), loss=True)


def test_what_is_no_integer_is_refused_with_a_way_out(rng):
    x = rng.standard_normal((3, 5)).astype(np.float32)
    loss = lathe.load("cross_entropy")
    for dtype, name in ((np.float64, "float64"), (np.float32, "float32"), (np.float16, "float16"), (bool, "bool")):
        message = f"argument 'target': expected dtype i32, given {name}; .*astype\\(np.int32\\)"
        for x_dtype in (np.float32, np.float64):
            with pytest.raises(lathe.ArgumentError, match=message):
                loss(x.astype(x_dtype), np.array([1, 0, 1], dtype))
            with pytest.raises(lathe.ArgumentError, match=message):
                loss.explain(x, target=np.array([1, 0, 1], dtype))
    text = """return attention { inputs = { kept = tensor("u8", "kv") },
      mask_mod = function(at, x) return ne(x.kept(at.kv), 0) end }"""
    masked, qkv = lathe.compile(text), (np.ones((1, 1, 4, 8), np.float32),) * 3
    for dtype, name in ((np.int64, "int64"), (np.int32, "int32"), (np.float32, "float32")):
        with pytest.raises(lathe.ArgumentError, match=f"argument 'kept': expected dtype u8, given {name}; .*np.uint8"):
            masked(*qkv, kept=np.ones(4, dtype))
    near(masked(*qkv, kept=np.ones(4, bool)), masked(*qkv, kept=np.ones(4, np.uint8)), 0)


# ---- results by default ----------------------------------------------------------------------------------------------


def test_where_all_results_are_optional_the_first_is_made(rng):
    """The first in the order of names, but for sums over all rows."""
    x, target = rng.standard_normal((3, 16)).astype(np.float32), np.array([4, 0, 2])
    near(lathe.load("logsumexp")(x), np.log(np.exp(np.float64(x)).sum(-1)))
    near(lathe.load("cross_entropy")(x, target), -np.log(softmax(np.float64(x))[np.arange(3), target]))
    near(lathe.load("topk")(x), -np.sort(-x)[:, :8], 0)
    near(lathe.load("topk")(x, places=True), np.argsort(-x)[:, :8], 0)
    assert lathe.load("topk")(x, values=True, places=True)._fields == ("places", "values")


def test_a_backward_pass_needs_a_gradient_of_a_result(rng):
    x, target = rng.standard_normal((3, 5)).astype(np.float32), np.array([1, 0, 4], np.int32)
    with pytest.raises(lathe.ArgumentError, match="expected the gradient of a result, one of .*dloss.* given none"):
        lathe.load("cross_entropy").backward(x, target)
    dx = lathe.load("cross_entropy").backward(x, target, dloss=np.ones(3, np.float32))
    near(dx, softmax(np.float64(x)) - np.eye(5)[target])


def test_gradients_that_are_not_wanted(qkv, rng):
    op, do = lathe.load("causal"), rng.standard_normal(qkv[0].shape).astype(np.float32)
    whole = op.backward(*qkv, do=do)
    some = op.backward(*qkv, do=do, dq=False)
    assert some._fields == ("dk", "dv")
    near(some.dk, whole.dk, 0)
    near(some.dv, whole.dv, 0)


# ---- texts and names -------------------------------------------------------------------------------------------------


def test_texts_and_names_are_told_apart():
    with pytest.raises(lathe.SpecError, match=r"given 'causal'; lathe.load\('causal'\) takes"):
        lathe.compile("causal")
    with pytest.raises(lathe.SpecError, match="given the text of a spec; lathe.compile"):
        lathe.load("return attention { mask_mod = causal }")


def test_lists_are_called_by_optimizers():
    with pytest.raises(lathe.ArgumentError, match=r"lathe.torch.Lion and lathe.torch.AdamW call it$"):
        lathe.load("lion")(g=np.ones(3), m=np.ones(3), p=np.ones(3))


def test_what_is_no_file_is_not_waited_for(tmp_path):
    import os

    path = tmp_path / "fifo.lua"
    os.mkfifo(path)
    with pytest.raises(lathe.SpecError, match="is a pipe or a device"):
        lathe.load(path)


# ---- numbers of 8 bits ---------------------------------------------------------------------------------------------


def test_keys_and_values_of_8_bits_are_the_numbers_that_are_stored(qkv):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    q, k, v = qkv
    op = lathe.load("causal")
    for kind in (np.int8, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
        k8, v8 = (4 * k).astype(kind), (4 * v).astype(kind)
        wanted = op(q, k8.astype(np.float32), v8.astype(np.float32))
        np.testing.assert_array_equal(op(q, k8, v8), wanted)
        np.testing.assert_array_equal(op(q, k8, v8.astype(np.float32)), wanted)
        if kind is not ml_dtypes.float8_e4m3fn:
            with pytest.raises(lathe.ArgumentError, match="'q': expected dtype f32, f16, bf16 or f8e4m3, given"):
                op(q.astype(kind), k8, v8)
        gradients = op.backward(q, k8, v8, do=np.ones_like(q))
        exact = op.backward(q, k8.astype(np.float32), v8.astype(np.float32), do=np.ones_like(q))
        for got, wanted in zip(gradients, exact):  # as of the rounded numbers, in the dtype of q
            assert got.dtype == q.dtype
            np.testing.assert_array_equal(got, wanted)


def test_queries_of_8_bits_go_with_keys_and_values_of_them(qkv):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    op = lathe.load("causal")
    q, k, v = qkv
    q8, k8, v8 = (x.astype(ml_dtypes.float8_e4m3fn) for x in qkv)
    wanted = op(q8.astype(np.float32), k8.astype(np.float32), v8.astype(np.float32))
    o = op(q8, k8, v8)
    assert o.dtype == ml_dtypes.bfloat16  # no result is made of 8 bits
    np.testing.assert_array_equal(o, wanted.astype(ml_dtypes.bfloat16))
    np.testing.assert_array_equal(op(q8, k8, v8, o=np.empty_like(wanted)), wanted)
    with pytest.raises(lathe.ArgumentError, match="'k': expected dtype f8e4m3 beside 'q' of f8e4m3, given f32"):
        op(q8, k, v8)
    with pytest.raises(lathe.ArgumentError, match="'q': expected dtype f32, f16 or bf16, given f8e4m3"):
        op.backward(q8, k, v, do=np.ones_like(q))
