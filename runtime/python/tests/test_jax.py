"""lathe.jax on the host device: results and gradients beside plain jax.numpy, under jit, vmap and shard_map."""

import lathe
import numpy as np
import pytest
from jax_setup import SLOPES, jax, jnp, make_qkv, plain, same

import lathe.jax


@pytest.fixture
def qkv(rng):
    return make_qkv(rng)


def test_forward_eager_and_jit(qkv):
    attend = lathe.jax.wrap("causal")
    same(attend(*qkv), plain(*qkv))
    same(jax.jit(attend)(*qkv), plain(*qkv))
    o, lse = lathe.jax.wrap("causal", results=("o", "lse"))(*qkv)
    assert o.shape == qkv[0].shape and lse.shape == (2, 4, 6)


def test_gradients(qkv):
    attend = lathe.jax.wrap(lathe.compile(SLOPES))
    slopes = jnp.asarray([0.1, 0.2, 0.0, 0.3], jnp.float32)
    ours = lambda q, k, v, s: (attend(q, k, v, slopes=s) ** 2).sum()
    theirs = lambda q, k, v, s: (plain(q, k, v, s) ** 2).sum()
    given = jax.jit(jax.grad(ours, (0, 1, 2, 3)))(*qkv, slopes)
    for a, b in zip(given, jax.grad(theirs, (0, 1, 2, 3))(*qkv, slopes)):
        same(a, b, 1e-4)


def test_numbers_are_constants(qkv):
    attend = lathe.jax.wrap(lathe.compile(SLOPES))
    zeros = jnp.zeros(4)
    same(attend(*qkv, slopes=zeros, gain=2.0), plain(2 * qkv[0], *qkv[1:]))
    same(attend(*qkv, slopes=zeros), plain(*qkv))


def test_vmap(qkv):
    attend = lathe.jax.wrap("causal")
    many = [jnp.stack([t, 2 * t, -t]) for t in qkv]
    same(jax.vmap(attend)(*many), jnp.stack([plain(*(t[i] for t in many)) for i in range(3)]))
    g = jax.vmap(jax.grad(lambda q, k, v: attend(q, k, v).sum()))(*many)
    same(g, jnp.stack([jax.grad(lambda q, k, v: plain(q, k, v).sum())(*(t[i] for t in many)) for i in range(3)]))


def test_shard_map_over_heads(qkv):
    from jax.sharding import Mesh, PartitionSpec as P

    if len(jax.devices()) < 2:
        pytest.skip("there is one device")
    mesh = Mesh(np.array(jax.devices()[:2]), ("h",))
    heads = P(None, "h")
    attend = jax.shard_map(lathe.jax.wrap("causal"), mesh=mesh, in_specs=(heads,) * 3, out_specs=heads, check_vma=False)
    same(jax.jit(attend)(*qkv), plain(*qkv))


def test_other_kinds(rng):
    x, w = jnp.asarray(rng.standard_normal((3, 8)), jnp.float32), jnp.ones(8)
    norm = lathe.jax.wrap("rms_norm")
    right = lambda x, w: x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * w
    same(norm(x, w), right(x, w))
    gradients = lambda f: jax.grad(lambda *t: f(*t).sum(), (0, 1))(x, w)
    for a, b in zip(gradients(norm), gradients(right)):
        same(a, b)


def test_refusals(qkv):
    attend = lathe.jax.wrap("causal")
    with pytest.raises(lathe.ArgumentError, match="'v': missing"):
        attend(*qkv[:2])
    with pytest.raises(lathe.ArgumentError, match="expected shape"):
        attend(qkv[0], qkv[1], qkv[2][:, :, :3])
    with pytest.raises(lathe.ArgumentError, match="unknown name"):
        attend(*qkv, slope=1.0)
