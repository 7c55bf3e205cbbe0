"""lathe.jax: layouts, scalars that change from call to call, integers, results by default."""

from types import SimpleNamespace

import lathe
import numpy as np
import pytest
from jax_setup import SLOPES, jax, jnp, make_qkv, plain, same

import lathe.jax
import lathe.jax._launch as launch


@pytest.fixture
def qkv(rng):
    return make_qkv(rng)


def turn(t):
    return t.swapaxes(1, 2)


def test_wrap_takes_what_load_and_compile_take(qkv, tmp_path):
    text = "return attention { mask_mod = causal }"
    (tmp_path / "mine.lua").write_text(text)
    for spec in ("causal", text, tmp_path / "mine.lua", str(tmp_path / "mine.lua"), lathe.load("causal")):
        same(lathe.jax.wrap(spec)(*qkv), plain(*qkv))
    with pytest.raises(lathe.ArgumentError, match="expected a lathe.Op, a file, .* or the text of one, given int"):
        lathe.jax.wrap(3)


# ---- layouts -------------------------------------------------------------------------------------------------------


def test_bshd_is_that_of_q_k_v_and_o(qkv):
    attend = lathe.jax.wrap("causal", layout="bshd", results=("o", "lse"))
    o, lse = jax.jit(attend)(*map(turn, qkv))
    wanted, wanted_lse = lathe.jax.wrap("causal", results=("o", "lse"))(*qkv)
    same(o, turn(wanted))
    same(lse, wanted_lse)  # finals are [b, h, q] in every layout, as in other libraries
    seed = jnp.cos(jnp.arange(wanted.size, dtype=jnp.float32)).reshape(wanted.shape)
    ours = jax.grad(lambda *t: (attend(*t)[0] * turn(seed)).sum(), (0, 1, 2))(*map(turn, qkv))
    theirs = jax.grad(lambda *t: (plain(*t) * seed).sum(), (0, 1, 2))(*qkv)
    for a, b in zip(ours, theirs):
        same(turn(a), b)


@pytest.mark.parametrize("t", [7, 4])  # 4: as many tokens as heads, where the shapes do not tell them apart
def test_bshd_turns_inputs_of_heads_and_tokens(rng, t):
    q, k, v = (jnp.asarray(rng.standard_normal((2, 4, t, 8)), jnp.float32) for _ in range(3))
    beta, g = (jnp.asarray(sign * rng.uniform(0.1, 0.9, (2, 4, t)), jnp.float32) for sign in (1, -1))
    k = k / jnp.linalg.norm(k, axis=-1, keepdims=True)
    loss = lambda f: lambda *t: (f(*t) ** 2).sum()
    theirs = jax.grad(loss(lathe.jax.wrap("gated_delta")), range(5))(q, k, v, beta, g)
    ours = jax.grad(loss(lathe.jax.wrap("gated_delta", layout="bshd")), range(5))(*map(turn, (q, k, v, beta, g)))
    for a, b in zip(ours, theirs):
        same(turn(a), b)


def test_bshd_leaves_what_has_no_tokens_or_two_of_them(rng, qkv):
    bias = jnp.asarray(rng.standard_normal((4, 6, 6)), jnp.float32)
    spec = lathe.compile("""return attention {
      inputs = { bias = tensor("f32", "h", "q", "kv"), slopes = tensor("f32", "h") }, mask_mod = causal,
      score_mod = function(s, at, x) return s + x.slopes(at.h) * x.bias(at.h, at.q, at.kv) end }""")
    slopes = jnp.asarray([0.5, 1.0, 2.0, -1.0])
    wanted = lathe.jax.wrap(spec)(*qkv, bias=bias, slopes=slopes)
    same(turn(lathe.jax.wrap(spec, layout="bshd")(*map(turn, qkv), bias=bias, slopes=slopes)), wanted)


def test_thd_of_packed_sequences(qkv):
    attend = lathe.jax.wrap("causal", layout="thd")
    packed = [jnp.concatenate([turn(t)[0], turn(t)[1, :3]]) for t in qkv]
    o = attend(*packed, cu_q=jnp.asarray([0, 6, 9], jnp.int32))
    wanted = plain(*qkv)
    same(o, jnp.concatenate([turn(wanted)[0], turn(wanted)[1, :3]]))
    with pytest.raises(lathe.ArgumentError, match="'cu_q': missing; layout 'thd' is of packed sequences"):
        attend(*packed)


def test_thd_of_linear_attention(rng):
    q, k, v = (jnp.asarray(rng.standard_normal((1, 2, 9, 8)), jnp.float32) for _ in range(3))
    g = jnp.asarray(-rng.uniform(0.1, 0.9, (1, 2, 9)), jnp.float32)
    cu = jnp.asarray([0, 4, 9], jnp.int32)
    wanted = lathe.jax.wrap("simple_gla")(q, k, v, g, cu=cu)
    ours = lathe.jax.wrap("simple_gla", layout="thd")
    flat = [turn(t)[0] for t in (q, k, v, g)]
    same(ours(*flat, cu=cu), turn(wanted)[0])
    with pytest.raises(lathe.ArgumentError, match="'cu': missing"):
        ours(*flat)


def test_tokens_and_slots_of_no_sequence_are_zeros(rng):
    q, k, v = (jnp.asarray(rng.standard_normal((1, 2, 900, 16)), jnp.float32) for _ in range(3))
    g = jnp.asarray(-rng.uniform(0.1, 0.9, (1, 2, 900)), jnp.float32)
    call = lathe.jax.wrap("simple_gla")
    whole = call(q, k, v, g)
    ending = jax.jit(lambda cu: call(q, k, v, g, cu=cu))
    for end in (0, 700, 900):
        for _ in range(3):  # memory that is used again
            o = ending(jnp.asarray([0, end], jnp.int32))
            same(o[:, :, :end], whole[:, :, :end])
            assert (o[:, :, end:] == 0).all()
    pool, index = jnp.ones((6, 2, 16, 16)), jnp.asarray([4], jnp.int32)
    states = lathe.jax.wrap("simple_gla", results=("o", "state_out"))
    _, made = states(q, k, v, g, state=pool, state_index=index)
    assert (made[jnp.asarray([0, 1, 2, 3, 5])] == 0).all() and (made[4] != 0).all()
    each = jax.vmap(lambda q: call(q, k, v, g, cu=jnp.asarray([0, 700], jnp.int32)))(jnp.stack([q, q + 1]))
    same(each[0, :, :, :700], whole[:, :, :700])
    assert (each[:, :, :, 700:] == 0).all()


def test_results_that_a_spec_has_not_say_why(rng):
    with pytest.raises(lathe.ArgumentError, match="has no result 'states': a token makes several updates"):
        lathe.jax.wrap("gated_delta_product", results=("o", "states"))
    q, k, v = (jnp.asarray(rng.standard_normal((1, 2, 9, 8)), jnp.float32) for _ in range(3))
    with pytest.raises(lathe.ArgumentError, match="result 'states': its size 'kept' follows from no operand"):
        lathe.jax.wrap("linear", results=("o", "states"))(q, k, v, states_index=jnp.zeros((1, 9), jnp.int32))


def test_layouts_that_are_refused(qkv):
    with pytest.raises(lathe.ArgumentError, match="layout: expected one of bhsd, bshd, thd, given 'sbhd'"):
        lathe.jax.wrap("causal", layout="sbhd")
    with pytest.raises(lathe.ArgumentError, match="rms_norm is rowwise"):
        lathe.jax.wrap("rms_norm", layout="bshd")
    with pytest.raises(lathe.ArgumentError, match=r"expected shape \[q, h, d\] in layout 'thd', given \[2, 6, 4, 8\]"):
        lathe.jax.wrap("causal", layout="thd")(*map(turn, qkv), cu_q=jnp.asarray([0, 12], jnp.int32))
    with pytest.raises(lathe.ArgumentError, match=r"shapes as \[b, h, s, d\]; the call has layout 'bshd'"):
        lathe.jax.wrap("causal", layout="bshd")(turn(qkv[0]), turn(qkv[1]), qkv[2])


# ---- scalars -------------------------------------------------------------------------------------------------------


def test_seeds_do_not_compile_anew(qkv):
    drop = lathe.jax.wrap("dropout")
    step = jax.jit(lambda seed, p: drop(*qkv, seed=seed, p=p))
    dv = lambda seed: jax.grad(lambda v: (drop(*qkv[:2], v, seed=seed, p=0.5) ** 2).sum())(qkv[2])
    for seed in range(3):
        wanted = drop(*qkv, seed=seed, p=0.5)
        same(step(seed, 0.5), wanted)
        same(drop(*qkv, seed=jnp.int32(seed), p=0.5), wanted)
        same(dv(jnp.int32(seed)), dv(seed))
    assert step._cache_size() == 1
    traced = [work for work, *_ in launch._prepared if work.op is drop.op and work.scalars]
    assert len(traced) == 4  # seed and p; seed alone, and with what a backward pass reads; that pass


def test_a_scalar_with_a_gradient(qkv):
    attend = lathe.jax.wrap(lathe.compile(SLOPES))
    slopes = jnp.asarray([0.1, 0.2, 0.0, 0.3], jnp.float32)
    ours = lambda gain, s: (attend(*qkv, slopes=s, gain=gain) ** 2).sum()
    theirs = lambda gain, s: (plain(*qkv, s, gain) ** 2).sum()
    for transform in (lambda f: f, jax.jit):
        for a, b in zip(transform(jax.grad(ours, (0, 1)))(1.5, slopes), jax.grad(theirs, (0, 1))(1.5, slopes)):
            assert a.shape == b.shape
            same(a, b, 1e-4)
    given = jax.grad(lambda g: ours(g, slopes))(jnp.full((1,), 1.5))
    same(given[0], jax.grad(lambda g: theirs(g, slopes))(1.5), 1e-4)


def test_what_has_no_gradient_is_refused(qkv):
    drop = lathe.jax.wrap("dropout")
    loss = lambda p: drop(*qkv, seed=1, p=p).sum()
    for f in (jax.grad(loss), jax.jit(jax.grad(loss)), jax.grad(jax.jit(loss))):
        with pytest.raises(lathe.ArgumentError, match="'p': is differentiated, and dropout has no gradient for it"):
            f(0.5)
    assert jax.grad(lambda p: loss(jax.lax.stop_gradient(p)))(0.5) == 0.0
    fixed = lathe.compile("""return attention { inputs = { slopes = tensor("f32", "h") }, mask_mod = causal,
      score_mod = function(s, at, x) return s - x.slopes(at.h) * (at.q - at.kv) end }""")
    with pytest.raises(lathe.ArgumentError, match="'slopes': is differentiated"):
        jax.grad(lambda s: lathe.jax.wrap(fixed)(*qkv, slopes=s).sum())(jnp.ones(4))
    same(jax.grad(lambda q: lathe.jax.wrap(fixed)(q, *qkv[1:], slopes=jnp.zeros(4)).sum())(qkv[0]),
         jax.grad(lambda q: plain(q, *qkv[1:]).sum())(qkv[0]))  # fmt: skip


@pytest.mark.parametrize("seed", [2**32 + 1, 2**40, 1.9999, -(2**31) - 1, "1", None.__class__, float("nan"), 10**400])
def test_numbers_that_are_no_i32(qkv, seed):
    with pytest.raises(lathe.ArgumentError, match="'seed': expected a whole number from -2147483648 to 2147483647"):
        lathe.jax.wrap("dropout")(*qkv, seed=seed)


def test_numbers_that_f32_does_not_hold(qkv):
    with pytest.raises(lathe.ArgumentError, match="'p': expected a number that f32 holds, given 1e"):
        lathe.jax.wrap("dropout")(*qkv, seed=1, p=1e39)


def test_traced_scalars_are_exact_or_refused(qkv):
    drop = lathe.jax.wrap("dropout")
    with pytest.raises(lathe.ArgumentError, match=r"'seed': expected a whole number \(i32\), given float32"):
        jax.jit(lambda s: drop(*qkv, seed=s))(1.0)
    with pytest.raises(lathe.ArgumentError, match=r"'seed': a scalar is an array of one element, given shape \[2\]"):
        drop(*qkv, seed=jnp.arange(2))
    same(drop(*qkv, seed=jnp.uint32(7)), drop(*qkv, seed=7))
    same(drop(*qkv, seed=jnp.full((1,), 7, jnp.int8)), drop(*qkv, seed=7))
    message = "'seed': expected a whole number from -2147483648 to 2147483647, given 4294967295"
    with pytest.raises(Exception, match=message):
        jax.block_until_ready(drop(*qkv, seed=jnp.uint32(2**32 - 1)))
    with jax.enable_x64(True):
        same(drop(*qkv, seed=jnp.int64(-7)), drop(*qkv, seed=-7))
        with pytest.raises(Exception, match="given -1099511627776"):
            jax.block_until_ready(jax.jit(lambda s: drop(*qkv, seed=s))(jnp.int64(-(2**40))))


def test_exact_scalars_beside_float64(rng):
    with jax.enable_x64(True):
        q, k, v = (jnp.asarray(rng.standard_normal((1, 4, 6, 8))) for _ in range(3))
        attend = lathe.jax.wrap(lathe.compile(SLOPES))
        slopes = jnp.zeros(4)
        gain = 1.0 + 2.0**-40
        for g in (gain, jnp.float64(gain)):
            same(attend(q, k, v, slopes=slopes, gain=g), plain(q, k, v, gain=gain), 1e-14)


# ---- integers, results -----------------------------------------------------------------------------------------------


def test_integer_arrays_are_exact_or_refused(rng):
    loss = lathe.jax.wrap("cross_entropy", results="loss")
    x = jnp.asarray(rng.standard_normal((3, 5)), jnp.float32)
    wanted = -jax.nn.log_softmax(x)[jnp.arange(3), jnp.asarray([0, 4, 2])]
    same(loss(x, target=np.array([0, 4, 2])), wanted)  # NumPy's own integers are of 64 bits
    same(loss(x, target=[0, 4, 2]), wanted)
    with pytest.raises(lathe.ArgumentError, match="'target': expected numbers from -2147483648 .* given 4294967296"):
        loss(x, target=np.array([0, 2**32, 2]))
    for dtype in (jnp.uint32, jnp.int8):
        hint = rf"given {jnp.dtype(dtype)}; where its values fit, target.astype\(jax.numpy.int32\)"
        with pytest.raises(lathe.ArgumentError, match=hint):
            jax.jit(lambda t: loss(x, target=t))(jnp.asarray([0, 4, 2], dtype))
    with jax.enable_x64(True), pytest.raises(lathe.ArgumentError, match="given int64; where its values fit"):
        loss(x, target=jnp.asarray([0, 4, 2]))
    with pytest.raises(lathe.ArgumentError, match="'target': expected dtype i32, given float32"):
        loss(x, target=jnp.zeros(3))
    with pytest.raises(lathe.ArgumentError, match="'q': expected dtype float, given int32"):
        lathe.jax.wrap("causal")(*(jnp.ones((1, 1, 2, 8), jnp.int32) for _ in range(3)))


def test_where_all_results_are_optional_the_first_is_given(rng):
    x = jnp.asarray(rng.standard_normal((3, 9)), jnp.float32)
    target = jnp.asarray([0, 4, 2], jnp.int32)
    wanted = lambda x: -jax.nn.log_softmax(x)[jnp.arange(3), target]
    ours = lathe.jax.wrap("cross_entropy")
    assert ours.wanted == ("loss",)
    same(ours(x, target=target), wanted(x))
    same(jax.grad(lambda x: ours(x, target=target).sum())(x), jax.grad(lambda x: wanted(x).sum())(x))
    same(lathe.jax.wrap("topk")(x), jax.lax.top_k(x, 8)[0])
    same(lathe.jax.wrap("topk", results="places")(x), jax.lax.top_k(x, 8)[1])
    with pytest.raises(lathe.ArgumentError, match="results: topk has no result 'y'; it has places, values"):
        lathe.jax.wrap("topk", results="y")
    with pytest.raises(lathe.ArgumentError, match=r"'lse': a result; lathe.jax.wrap\(op, results=\('lse',\)\)"):
        ours(x, target=target, lse=True)


def test_thd_of_keys_in_pages(rng):
    q = jnp.asarray(rng.standard_normal((3, 2, 8)), jnp.float32)
    pool = jnp.asarray(rng.standard_normal((4, 2, 16, 8)), jnp.float32)
    packed = {"cu_q": [0, 1, 3], "used_kv": [20, 7], "pages": [[2, 0], [1, 3]]}
    o = lathe.jax.wrap("causal", layout="thd")(q, pool, pool, **packed)
    same(o, turn(lathe.jax.wrap("causal")(turn(q[None]), pool, pool, **packed))[0])
    grads = jax.jit(
        jax.grad(lambda q, k, v: lathe.jax.wrap("causal", layout="thd")(q, k, v, **packed).sum(), argnums=(0, 1, 2))
    )(q, pool, pool)
    ones = np.ones((1, 2, 3, 8), np.float32)
    lists = {name: np.array(values, np.int32) for name, values in packed.items()}
    wanted = lathe.load("causal").backward(np.array(turn(q[None])), np.array(pool), np.array(pool), do=ones, **lists)
    for given, of in zip(grads, (turn(wanted.dq)[0], wanted.dk, wanted.dv)):
        assert given.shape == of.shape
        np.testing.assert_allclose(given, of, atol=1e-5)


def test_scalars_that_are_constants_of_the_program_keep_their_sign():
    """0.0 == -0.0, and NaN is not NaN: prepared calls are not told apart by that."""
    text = "return rowwise { inputs = { w = scalar('f32') }, forward = function(x, at, i) return x / i.w end }"
    inverse = lathe.jax.wrap(lathe.compile(text, "sign.lua"))
    x = jnp.ones((2, 8), jnp.float32)
    assert [float(inverse(x, w=w)[0, 0]) for w in (0.0, -0.0, 0.0)] == [np.inf, -np.inf, np.inf]
    before = len(launch._prepared)
    for _ in range(2):
        assert np.isnan(inverse(x, w=float("nan"))).all()
    assert len(launch._prepared) == before + 1
    for wrong in (1e39, 1e-39):
        with pytest.raises(lathe.ArgumentError, match="'w': expected a number that f32 holds"):
            inverse(x, w=wrong)
        with jax.enable_x64(True), pytest.raises(lathe.ArgumentError, match="'w': expected a number that f32 holds"):
            inverse(x, w=jnp.float64(wrong))


def test_keys_and_values_of_8_bits():
    op = lathe.jax.wrap(lathe.load("causal"))
    rng = np.random.default_rng(3)
    q, k, v = (jnp.asarray(rng.standard_normal((1, h, 9, 16)), jnp.float32) for h in (4, 2, 2))
    for kind in (jnp.float8_e4m3fn, jnp.float8_e5m2, jnp.int8):
        k8, v8 = (4 * k).astype(kind), (4 * v).astype(kind)
        wanted = op(q, k8.astype(jnp.float32), v8.astype(jnp.float32))
        np.testing.assert_array_equal(np.asarray(op(q, k8, v8)), np.asarray(wanted))
        dq = jax.grad(lambda q, k, v: op(q, k, v).sum())(q, k8, v8)
        exact = jax.grad(lambda q, k, v: op(q, k, v).sum())(q, k8.astype(jnp.float32), v8.astype(jnp.float32))
        np.testing.assert_array_equal(np.asarray(dq), np.asarray(exact))
    k8 = k.astype(jnp.float8_e4m3fn)
    with pytest.raises(lathe.ArgumentError, match="'k': is differentiated, and JAX would round its gradient to float8"):
        jax.grad(lambda k: op(q, k, v).sum())(k8)


def test_queries_of_8_bits():
    op = lathe.jax.wrap(lathe.load("causal"))
    rng = np.random.default_rng(3)
    q8, k8, v8 = (jnp.asarray(rng.standard_normal((1, h, 9, 16)), jnp.float8_e4m3fn) for h in (4, 2, 2))
    wanted = op(*(x.astype(jnp.float32) for x in (q8, k8, v8))).astype(jnp.bfloat16)
    np.testing.assert_array_equal(np.asarray(op(q8, k8, v8)), np.asarray(wanted))


@pytest.mark.parametrize("ordinals, wanted", [([0], {0: 0}), ([2], {0: 2}), ([-1], {0: 0}), ([1, 3], {1: 1, 3: 3})])
def test_the_gpus_of_a_process(ordinals, wanted, monkeypatch):
    """A process may have but one of several GPUs: jax.distributed.initialize(local_device_ids=2)."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "local_devices", lambda: [SimpleNamespace(local_hardware_id=n) for n in ordinals])
    monkeypatch.setattr(launch, "tells_devices", lambda: True)
    assert launch._devices() == wanted


def test_ops_do_not_write_over_arrays_of_jax():
    x = jnp.ones((2, 3))
    with pytest.raises(lathe.ArgumentError, match="'x': arrays of JAX are not written in place"):
        lathe.load("act_silu")(x)
    same(x, jnp.ones((2, 3)))
