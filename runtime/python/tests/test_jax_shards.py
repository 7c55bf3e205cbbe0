"""lathe.jax in jax.shard_map over four devices beside one device: results and gradients of attention whose keys, heads
or queries are sharded.
"""

import lathe
import numpy as np
import pytest
from jax_setup import jax, jnp, same

import lathe.jax
import lathe.jax._launch as launch

if not hasattr(jax, "shard_map") or len(jax.devices()) < 4:
    pytest.skip("there is no jax.shard_map, or there are fewer than four devices", allow_module_level=True)

from jax import lax  # noqa: E402
from jax.sharding import Mesh, PartitionSpec as P  # noqa: E402

MESH = Mesh(np.array(jax.devices()[:4]), ("s",))
KEYS = P(None, None, "s")
BIAS = """return attention { inputs = { bias = tensor("f32", "h", "kv", { grad = true }) },
  score_mod = function(s, at, x) return s + x.bias(at.h, at.kv) end }"""
SPECS = {
    "causal": lambda rng: {},
    "alibi": lambda rng: {},
    "softcap": lambda rng: {},
    "sliding_window": lambda rng: {"window": 6},
    "sinks": lambda rng: {"sink": jnp.asarray(rng.standard_normal(4), jnp.float32)},
    "relative_bias": lambda rng: {"table": jnp.asarray(rng.standard_normal((4, 32)), jnp.float32)},
    "document": lambda rng: {"doc": np.sort(rng.integers(0, 4, (2, 16)), -1)},
    "dropout": lambda rng: {"seed": 3, "p": 0.25},
    BIAS: lambda rng: {"bias": jnp.asarray(rng.standard_normal((4, 16)), jnp.float32)},
}


def of_specs(*specs):
    return pytest.mark.parametrize("spec", specs, ids=lambda s: "bias by key" if s is BIAS else s)


NO_COMBINE = """return attention { online_func = online_func { online_rowscales = softmax_states,
  online_fwd = softmax_step, forward = softmax_weight, online_fwd_epilogue = softmax_epilogue } }"""


def draw(rng, queries=16, heads=4, key_heads=2):
    make = lambda h, n: jnp.asarray(rng.standard_normal((2, h, n, 8)), jnp.float32)
    return make(heads, queries), make(key_heads, 16), make(key_heads, 16)


def loss(f):
    """Of all results, each element with a weight of its own."""
    weight = lambda t: jnp.cos(jnp.arange(t.size, dtype=jnp.float32)).reshape(t.shape)
    return lambda *args: sum((weight(r) * r).sum() for r in jax.tree.leaves(f(*args)))


def agree(sharded, one, tensors, given, error=1e-5):
    """Both are functions of tensors and of the inputs, whose arrays of floats are differentiated."""
    moving = {n: v for n, v in given.items() if isinstance(v, jax.Array)}
    fixed = {n: v for n, v in given.items() if n not in moving}
    call = lambda f: lambda ts, m: f(*ts, **m, **fixed)
    outcome = lambda f: (f(tensors, moving), jax.grad(loss(f), (0, 1))(tensors, moving))
    given = jax.jit(lambda: outcome(call(sharded)))()
    for a, b in zip(jax.tree.leaves(given), jax.tree.leaves(outcome(call(one))), strict=True):
        same(a, b, error)


def shard(f, specs, out, mesh=MESH, check=True):
    """f(q, k, v, **inputs), the inputs being the same on all devices."""

    def call(q, k, v, **given):
        arrays = {n: jnp.asarray(t) for n, t in given.items() if not np.isscalar(t)}
        fixed = {n: t for n, t in given.items() if np.isscalar(t)}
        inner = lambda q, k, v, more: f(q, k, v, **more, **fixed)
        every = specs if isinstance(specs, tuple) else (specs,) * 3
        return jax.shard_map(inner, mesh=mesh, in_specs=(*every, P()), out_specs=out, check_vma=check)(q, k, v, arrays)

    return call


# ---- keys ----------------------------------------------------------------------------------------------------------


@of_specs(*SPECS)
def test_keys(spec, rng):
    inputs = SPECS[spec](rng)
    whole = lathe.jax.wrap(spec, results=("o", "lse"))
    keys = lathe.jax.wrap(spec, results=("o", "lse"), keys="s")
    agree(shard(keys, (P(), KEYS, KEYS), P()), whole, draw(rng, 6), inputs)


@pytest.mark.parametrize("heads", [4, 3])  # 3: which the devices do not share
def test_keys_where_types_tell_nothing(rng, heads):
    """Without check_vma each device has a share of the gradient of what is the same on all."""
    given = {"sink": jnp.linspace(-1.0, 1.0, heads)}
    keys = lathe.jax.wrap("sinks", keys="s")
    for check in (False, True):
        f = shard(keys, (P(), KEYS, KEYS), P(), check=check)
        agree(f, lathe.jax.wrap("sinks"), draw(rng, 6, heads, heads), given)


@of_specs("causal", "document", "sliding_window", "sinks", "dropout")
@pytest.mark.parametrize("chunk", [1, 2])
def test_interleaved_keys(spec, chunk, rng):
    """Device r has chunks r, r + 4, ...: a cache that grows on all devices in turn."""
    place = np.concatenate([[i for i in range(16) if i // chunk % 4 == r] for r in range(4)])
    keys = shard(lathe.jax.wrap(spec, keys="s", interleave=chunk), (P(), KEYS, KEYS), P())
    turned = lambda q, k, v, **given: keys(q, k[:, :, place], v[:, :, place], **given)
    agree(turned, lathe.jax.wrap(spec), draw(rng, 3), SPECS[spec](rng))


def test_interleaved_keys_that_are_refused(rng):
    q, k, v = draw(rng)
    sharded = lambda f: jax.shard_map(f, mesh=MESH, in_specs=(KEYS, KEYS, KEYS), out_specs=KEYS)
    with pytest.raises(lathe.ArgumentError, match="4 keys of a device are a multiple of, given 3"):
        sharded(lathe.jax.wrap("causal", keys="s", interleave=3))(q, k, v)
    placed = lambda *xs: lathe.jax.wrap("causal", keys="s", interleave=2)(*xs, kv_start=0, len_kv=16)
    with pytest.raises(lathe.ArgumentError, match="interleave= says where the keys of a device are"):
        sharded(placed)(q, k, v)
    with pytest.raises(lathe.ArgumentError, match="interleave: expected the keys of a chunk, 1 or more, beside keys="):
        lathe.jax.wrap("causal", interleave=4)
    with pytest.raises(lathe.ArgumentError, match="1 or more, beside keys=, or 0, given True"):
        lathe.jax.wrap("causal", keys="s", interleave=True)


def test_keys_of_half_precision_and_tokens_before_heads(rng):
    turned = [t.swapaxes(1, 2).astype(jnp.bfloat16) for t in draw(rng, 6)]
    keys = lathe.jax.wrap("causal", layout="bshd", keys="s")
    f = shard(keys, (P(), P(None, "s"), P(None, "s")), P())
    assert f(*turned).dtype == jnp.bfloat16
    agree(f, lathe.jax.wrap("causal", layout="bshd"), turned, {}, 2e-2)


def test_devices_whose_keys_are_not_in_use(rng):
    """A cache that fills from its front: the last devices have none, and rows ahead of all keys are zero."""
    q, k, v = draw(rng, 3)
    whole, keys = lathe.jax.wrap("causal"), lathe.jax.wrap("causal", keys="s")
    for total in (6, 1):

        def decode(q, k, v):
            used = jnp.clip(total - 4 * lax.axis_index("s"), 0, 4)
            return keys(q, k, v, used_kv=jnp.full(2, used, jnp.int32), q_start=total - 3)

        front = lambda q, k, v: whole(q, k[:, :, :total], v[:, :, :total])
        agree(shard(decode, (P(), KEYS, KEYS), P()), front, (q, k, v), {})


def test_heads_and_keys_on_two_axes(rng):
    mesh = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("h", "s"))
    keys = lathe.jax.wrap("alibi", keys="s")
    local = lambda q, k, v: keys(q, k, v, h_start=lax.axis_index("h") * q.shape[1], n_h=4)
    f = shard(local, (P(None, "h"), P(None, "h", "s"), P(None, "h", "s")), P(None, "h"), mesh)
    agree(f, lathe.jax.wrap("alibi"), draw(rng, 6), {})
    both = lathe.jax.wrap("alibi", keys=["h", "s"])  # all four devices as one axis
    cut = P(None, None, ("h", "s"))
    agree(shard(both, (P(), cut, cut), P(), mesh), lathe.jax.wrap("alibi"), draw(rng, 6), {})


def test_what_ends_a_row_comes_once(rng):
    """A mod of o that sees positions, which has no backward pass beside keys that are sharded."""
    spec = """return attention { inputs = { gate = tensor("f32", "h", { grad = true }) }, mask_mod = causal,
      output_mod = function(o, at, x) return o * x.gate(at.h) * cos(0.1 * at.pos) end }"""
    whole, keys = lathe.jax.wrap(spec), lathe.jax.wrap(spec, keys="s")
    for heads in (4, 3):
        q, k, v = draw(rng, 6, heads, heads)
        f, gate = shard(keys, (P(), KEYS, KEYS), P()), jnp.arange(1.0, heads + 1)
        same(jax.jit(f)(q, k, v, gate=gate), whole(q, k, v, gate=gate))
    with pytest.raises(Exception, match="kv_start: beside an output_mod .* apply the mod to o outside"):
        jax.block_until_ready(jax.jit(jax.grad(lambda q: f(q, k, v, gate=gate).sum()))(q))


def test_parts_and_combine(rng):
    sink = jnp.linspace(-1.0, 1.0, 4)
    attend = lathe.jax.wrap("sinks", results=("o", "lse"))

    def local(q, k, v, sink):
        parts = attend.parts(q, k, v, sink=sink, kv_start=4 * lax.axis_index("s"), len_kv=16)
        return attend.combine(*(lax.all_gather(p, "s") for p in parts), sink=sink)

    q, k, v = draw(rng, 6)
    f = shard(local, (P(), KEYS, KEYS), P("s"))
    for a, b in zip(jax.jit(f)(q, k, v, sink=sink), attend(q, k, v, sink=sink)):
        same(a.reshape(4, *b.shape), jnp.stack([b] * 4))
    half = lambda a: attend.parts(q, k[:, :, a : a + 8], v[:, :, a : a + 8], sink=sink, kv_start=a, len_kv=16)
    merged = jax.jit(lambda *parts: attend.merge(*(jnp.stack(p) for p in zip(*parts)), sink=sink))(half(0), half(8))
    for a, b in zip(attend.combine(*(p[None] for p in merged), sink=sink), attend(q, k, v, sink=sink)):
        same(a, b)
    with pytest.raises(lathe.UnsupportedError, match="parts of rows have no derivatives of their own; .* keys=AXIS"):
        jax.grad(lambda q: attend.parts(q, k, v, sink=sink)[0].sum())(q)
    with pytest.raises(lathe.ArgumentError, match="'sinks': unknown name; sinks takes part_o, part_rows, sink"):
        attend.combine(*attend.parts(q, k, v, sink=sink), sinks=sink)
    with pytest.raises(lathe.ArgumentError, match="no combine pass: it puts parts of rows of attention together"):
        lathe.jax.wrap("rms_norm").parts(q)


def test_refusals(rng):
    q, k, v = draw(rng)
    keys = lathe.jax.wrap("causal", keys="s")
    with pytest.raises(lathe.ArgumentError, match="keys: there is no mesh axis 's' here; call it inside of jax.shard_"):
        keys(q, k, v)
    with pytest.raises(lathe.UnsupportedError, match="keys: rms_norm is rowwise, and keys are of attention"):
        lathe.jax.wrap("rms_norm", keys="s")
    with pytest.raises(lathe.LatheError, match="online_func has no combine"):
        lathe.jax.wrap(NO_COMBINE, keys="s")
    packed = lambda q, k, v: keys(q[:1], k[:1], v[:1], cu_q=jnp.asarray([0, 16], jnp.int32))
    with pytest.raises(lathe.ArgumentError, match="'kv_start': missing; beside 'cu_q' the shape of k does not say"):
        shard(packed, (P(), KEYS, KEYS), P())(q, k, v)
    with pytest.raises(lathe.UnsupportedError, match="keys: result 'part_o': of all keys there are o and the finals"):
        lathe.jax.wrap("causal", keys="s", results=("part_o", "part_rows"))
    with pytest.raises(lathe.ArgumentError, match="keys, states: expected one of them"):
        lathe.jax.wrap("causal", keys="s", states="s")
    square = lambda q: (shard(keys, (P(), KEYS, KEYS), P())(q, k, v) ** 2).sum()
    with pytest.raises(lathe.UnsupportedError, match="a second derivative is asked for"):
        jax.grad(lambda q: jax.grad(square)(q).sum())(q)


# ---- plain collectives around a call -------------------------------------------------------------------------------


@of_specs("alibi", "sinks", "relative_bias", "dropout", BIAS)
def test_heads(spec, rng):
    """Tokens are sharded, all_to_all shards heads in their place."""
    attend = lathe.jax.wrap(spec)

    def local(q, k, v, **inputs):
        q, k, v = (lax.all_to_all(t, "s", 1, 2, tiled=True) for t in (q, k, v))
        o = attend(q, k, v, h_start=lax.axis_index("s"), n_h=4, **inputs)
        return lax.all_to_all(o, "s", 2, 1, tiled=True)

    agree(shard(local, KEYS, KEYS), attend, draw(rng, 16, 4, 4), SPECS[spec](rng))


@of_specs("causal", "sliding_window", "document", "dropout", BIAS)
def test_gather(spec, rng):
    """Each device has queries of its own and gets all keys."""
    attend = lathe.jax.wrap(spec)

    def local(q, k, v, **inputs):
        k, v = (lax.all_gather(t, "s", axis=2, tiled=True) for t in (k, v))
        return attend(q, k, v, q_start=lax.axis_index("s") * q.shape[2], **inputs)

    agree(shard(local, KEYS, KEYS), attend, draw(rng), SPECS[spec](rng))


def test_layers_in_a_scan(rng):
    """Types of what varies along the mesh are those that scan, checkpoint and vmap ask for."""
    attend, keys = lathe.jax.wrap("causal"), lathe.jax.wrap("causal", keys="s")

    def gathered(q, k, v):
        k, v = (lax.all_gather(t, "s", axis=2, tiled=True) for t in (k, v))
        return attend(q, k, v, q_start=lax.axis_index("s") * q.shape[2])

    def layers(attend):
        step = jax.checkpoint(lambda x, scale: (x + scale * attend(x, x, x), None))
        return lambda q, k, v: lax.scan(step, q, jnp.asarray([0.5, 2.0]))[0]

    agree(shard(layers(gathered), KEYS, KEYS), layers(attend), draw(rng, 16, 4, 4), {})
    many = [jnp.stack([t, 2 * t]) for t in draw(rng, 6)]
    f = shard(keys, (P(), KEYS, KEYS), P())
    agree(lambda *t: jax.vmap(f)(*t), lambda *t: jnp.stack([attend(*(x[i] for x in t)) for i in range(2)]), many, {})


# ---- several devices of one process ---------------------------------------------------------------------------------


def test_each_device_has_its_own_kernel(rng, monkeypatch):
    """As GPUs of one process have: here four of the host, the kernel of the third being another spec's."""
    monkeypatch.setattr(launch, "_devices", lambda: dict.fromkeys(range(4), lathe._arrays.HOST))
    full, causal = lathe.compile("return attention {}"), lathe.compile("return attention { mask_mod = causal }")
    q, k, v = draw(rng)
    run = lambda op: shard(lathe.jax.wrap(op), P(None, None), P("s"))(q, k, v)
    run(full)
    run(causal)
    made = {work.op: p for (work, *_), p in launch._prepared.items() if work.op in (full, causal)}
    assert len(set(made[causal].kernels)) >= 1 and list(made[causal].calls) == [0, 1, 2, 3]
    made[causal].kernels[2] = made[full].kernels[2]
    wanted = [lathe.jax.wrap("causal")(q, k, v)] * 4
    wanted[2] = lathe.jax.wrap("full")(q, k, v)
    same(run(causal), jnp.concatenate(wanted))
    monkeypatch.setattr(launch, "_devices", lambda: dict.fromkeys(range(3), lathe._arrays.HOST))
    with pytest.raises(Exception, match="lathe: device 3 is none of those that kernels were prepared for"):
        np.asarray(run(lathe.compile("return attention {}")))
