"""lathe.jax: linear attention to tokens that are sharded over four devices beside one device, with gradients."""

import lathe
import numpy as np
import pytest
from jax_setup import jax, jnp, same

import lathe.jax

if not hasattr(jax, "shard_map") or len(jax.devices()) < 4:
    pytest.skip("there is no jax.shard_map, or there are fewer than four devices", allow_module_level=True)

from jax.sharding import Mesh, PartitionSpec as P  # noqa: E402

B, H, T, D = 2, 2, 12, 8
BACKWARDS = """return linear_attention {
  inputs = { g = tensor("float", "b", "h", "t", { grad = true, range = { -inf, 0 } }) },
  reverse = true, decay = function(at, x) return x.g(at.b, at.h, at.t) end }"""
COLUMNS = """return linear_attention {
  inputs = { g = tensor("float", "b", "h", "t", "d_v", { grad = true, range = { -inf, 0 } }) },
  decay = function(at, x) return x.g(at.b, at.h, at.t, at.j) end }"""
SPECS = ["linear", "linear_elu", "simple_gla", "gla", "gated_delta", "kda", "gdn2", "rwkv6", "rwkv7", "mamba2", "hgrn2",
         "precond_kda", "retention_linear", "flao", BACKWARDS, COLUMNS]  # fmt: skip
SIZES = {"b": B, "h": H, "h_k": H, "t": T, "d": D, "d_v": D}


def draw(spec, seed=5):
    """What a call takes, by name, and how it is sharded along "s"."""
    rng, op = np.random.default_rng(seed), lathe.load(spec) if "return" not in spec else lathe.compile(spec)
    given, specs = {}, {}
    for a in op.forward.tensors:
        if a.optional and not a.is_input:
            continue
        x = rng.standard_normal([SIZES[d.name] for d in a.dims]) / 2
        if a.name in ("g", "w"):
            x = -np.abs(x)
        elif a.name in ("beta", "eta", "write", "erase"):
            x = 1 / (1 + np.exp(-x))
        elif a.name == "kappa":
            x = np.clip(x, -1, 1)
        elif a.name == "m":
            x = 1 + x / 10
        given[a.name] = jnp.asarray(x, jnp.float32)
        specs[a.name] = P(*("s" if d.name == "t" else None for d in a.dims))
    return given, specs


def loss(f):
    weight = lambda t: jnp.cos(jnp.arange(t.size, dtype=jnp.float32)).reshape(t.shape)
    return lambda *args: sum((weight(r) * r).sum() for r in jax.tree.leaves(f(*args)))


def agree(sharded, one, given, error=2e-5):
    outcome = lambda f: (f(given), jax.grad(loss(f))(given))
    wanted = outcome(one)
    for a, b in zip(jax.tree.leaves(jax.jit(lambda: outcome(sharded))()), jax.tree.leaves(wanted), strict=True):
        same(a, b, error)


def shard(states, specs, out, devices=4, check=True):
    mesh = Mesh(np.array(jax.devices()[:devices]), ("s",))
    return jax.shard_map(lambda given: states(**given), mesh=mesh, in_specs=(specs,), out_specs=out, check_vma=check)


TOKENS = P(None, None, "s")


@pytest.mark.parametrize("spec", SPECS, ids=lambda s: {BACKWARDS: "backwards", COLUMNS: "columns"}.get(s, s))
def test_states(spec):
    given, specs = draw(spec)
    agree(shard(lathe.jax.wrap(spec, states="s"), specs, TOKENS), lambda t: lathe.jax.wrap(spec)(**t), given)


CALLS = {"delta": ("gated_delta", True), "unchecked": ("gated_delta", False), "backwards": (BACKWARDS, True),
         "whole": ("flao", True)}  # fmt: skip


@pytest.mark.parametrize("spec, check", CALLS.values(), ids=CALLS)
def test_states_of_a_caller(spec, check):
    """The one before the first token, and the one behind the last, have gradients, too."""
    given, specs = draw(spec)
    given["state"] = jnp.asarray(np.random.default_rng(1).standard_normal((B, H, D, D)), jnp.float32)
    specs["state"] = P()
    results = ("o", "state_out")
    f = shard(lathe.jax.wrap(spec, states="s", results=results), specs, (TOKENS, P()), check=check)
    agree(f, lambda t: lathe.jax.wrap(spec, results=results)(**t), given)


def test_states_of_half_precision():
    given, specs = draw("gated_delta")
    given = {n: x.astype(jnp.bfloat16) for n, x in given.items()}
    given["state"], specs["state"] = jnp.ones((B, H, D, D), jnp.bfloat16), P()
    results = ("o", "state_out")
    f = shard(lathe.jax.wrap("gated_delta", states="s", results=results), specs, (TOKENS, P()))
    assert [r.dtype for r in f(given)] == [jnp.bfloat16] * 2
    agree(f, lambda t: lathe.jax.wrap("gated_delta", results=results)(**t), given, 5e-2)


def test_sums_of_keys_go_along():
    given, specs = draw("linear_elu")
    rng = np.random.default_rng(1)
    given |= {"state": jnp.asarray(rng.random((B, H, D, D)), jnp.float32), "norm": jnp.ones((B, H, D))}
    specs |= {"state": P(), "norm": P()}
    results = ("o", "state_out", "norm_out")
    f = shard(lathe.jax.wrap("linear_elu", states="s", results=results), specs, (TOKENS, P(), P()))
    agree(f, lambda t: lathe.jax.wrap("linear_elu", results=results)(**t), given)


BY_WIDTH = "return linear_attention { decay = function(at) return -2.0 / at.d_v end }"


@pytest.mark.parametrize("spec", ["gla", BY_WIDTH], ids=["gla", "by_width"])
def test_factors_of_wide_values(spec):
    """Of a decay by key channel 16 columns of a state tell, whatever the others are; not where it reads at.d_v."""
    given, specs = draw(spec)
    given["v"] = jnp.concatenate([given["v"], 1 - given["v"], 2 * given["v"]], -1)
    agree(shard(lathe.jax.wrap(spec, states="s"), specs, TOKENS), lambda t: lathe.jax.wrap(spec)(**t), given)


def test_a_rule_that_goes_by_the_number_of_value_channels():
    spec = "return linear_attention { delta = function(at) return 8.0 / at.d_v end }"
    given, specs = draw(spec)
    given["v"] = jnp.concatenate([given["v"], 1 - given["v"]], -1)
    with pytest.raises(lathe.UnsupportedError, match="reads at.d_v, which is not d"):
        shard(lathe.jax.wrap(spec, states="s"), specs, TOKENS)(given)


@pytest.mark.parametrize("devices", [2, 4])
def test_tokens_before_heads_and_wide_values(devices):
    given, specs = draw("gated_delta")
    turned = {n: x.swapaxes(1, 2) for n, x in given.items()}
    turned["v"] = jnp.concatenate([turned["v"], 1 - turned["v"]], -1)
    specs = dict.fromkeys(specs, P(None, "s"))
    f = shard(lathe.jax.wrap("gated_delta", layout="bshd", states="s"), specs, P(None, "s"), devices)
    agree(f, lambda t: lathe.jax.wrap("gated_delta", layout="bshd")(**t), turned)


def test_packed_sequences_that_end_anywhere():
    """Each device has a cu of its own tokens, in which every sequence has a place."""
    given, specs = draw("gated_delta")
    given = {n: x[:1] for n, x in given.items()}
    cu = jnp.asarray([0, 2, 7, 12], jnp.int32)
    states = lathe.jax.wrap("gated_delta", states="s")
    local = lambda **t: states(**t, cu=jnp.clip(cu - 3 * jax.lax.axis_index("s"), 0, 3))
    agree(shard(local, specs, TOKENS), lambda t: lathe.jax.wrap("gated_delta")(**t, cu=cu), given)


def test_what_an_optional_input_does_is_found_out():
    """The factors of a decay that is left out are 1; the same function has to serve calls that give it."""
    spec = """return linear_attention {
      inputs = { g = tensor("float", "b", "h", "t", { grad = true, optional = true, range = { -inf, 0 } }),
                 beta = tensor("float", "b", "h", "t", { grad = true, optional = true, range = { 0, 2 } }) },
      key_mod = unit, decay = function(at, x) return x.g(at.b, at.h, at.t) end,
      delta = function(at, x) return x.beta(at.b, at.h, at.t) end }"""
    given, specs = draw("gated_delta")
    states = lathe.jax.wrap(spec, states="s")
    assert states.nature.mixes
    agree(shard(states, specs, TOKENS), lambda t: lathe.jax.wrap(spec)(**t), given)


def test_refusals():
    wrap = lambda spec: lathe.jax.wrap(spec, states="s")
    with pytest.raises(lathe.UnsupportedError, match="states: causal is attention, .* keys= shards the keys"):
        wrap("causal")
    with pytest.raises(lathe.UnsupportedError, match="flao_lrpe is not cut by its tokens, as .* counts tokens"):
        wrap("flao_lrpe")
    with pytest.raises(lathe.UnsupportedError, match="counts tokens, by at.pos.*; jax.lax.all_to_all shards its heads"):
        wrap("return linear_attention { decay = function(at) return -0.01 * at.pos end }")
    with pytest.raises(lathe.UnsupportedError, match="value_mod makes something of 0"):
        wrap("return linear_attention { value_mod = function(v) return v + 1 end }")
    with pytest.raises(lathe.UnsupportedError, match="a token makes several updates, which is not tried out yet"):
        wrap("gated_delta_product")
    with pytest.raises(lathe.UnsupportedError, match="several heads of q read a state .*; repeat k and v"):
        wrap("return linear_attention { query_heads = 2 }")
    with pytest.raises(lathe.UnsupportedError, match="result 'states': of tokens that are sharded there are o, "):
        lathe.jax.wrap("gated_delta", states="s", results=("states",))
    given, specs = draw("gated_delta")
    with pytest.raises(lathe.ArgumentError, match="states: there is no mesh axis 's' here"):
        wrap("gated_delta")(**given)
    with pytest.raises(lathe.UnsupportedError, match="state_index"):
        shard(lambda **t: wrap("gated_delta")(**t, state_index=jnp.zeros(2, jnp.int32)), specs, TOKENS)(given)
    given, specs = draw("gdn2")
    given |= {n: jnp.pad(given[n], ((0, 0),) * 3 + ((0, 8),)) for n in ("v", "write")}
    with pytest.raises(lathe.UnsupportedError, match="'write' is over d_v, which is not d"):
        shard(wrap("gdn2"), specs, TOKENS)(given)
