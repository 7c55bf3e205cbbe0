"""lathe.jax: what derivatives there are, and the sentences for those that there are not; vmap in every combination."""

import lathe
import pytest
from jax_setup import SLOPES, jax, jnp, make_qkv, plain, same

import lathe.jax

SECOND = "a second derivative is asked for .*no gradients of their own"
FORWARD = "forward-mode derivatives .* are asked for"


@pytest.fixture
def qkv(rng):
    return make_qkv(rng)


def test_second_derivatives_are_refused(qkv):
    attend = lathe.jax.wrap("causal")
    loss = lambda q: (attend(q, *qkv[1:]) ** 2).sum()
    norm = lambda q: (jax.grad(loss)(q) ** 2).sum()
    for f in (jax.grad(norm), jax.jit(jax.grad(norm)), jax.grad(jax.jit(norm))):
        with pytest.raises(lathe.UnsupportedError, match=SECOND):
            f(qkv[0])
    for f in (jax.hessian(loss), jax.jacfwd(jax.grad(loss)), jax.jacrev(jax.grad(loss))):
        with pytest.raises(lathe.UnsupportedError, match=f"{SECOND}|{FORWARD}"):
            f(qkv[0])
    # A gradient that counts as constant is no second derivative.
    kept = lambda q: (jax.grad(loss)(jax.lax.stop_gradient(q)) * q).sum()
    same(jax.grad(kept)(qkv[0]), jax.grad(lambda q: (plain(q, *qkv[1:]) ** 2).sum())(qkv[0]), 1e-4)


def test_forward_mode_is_refused(qkv):
    attend = lathe.jax.wrap("causal")
    f = lambda q: attend(q, *qkv[1:])
    for call in (lambda: jax.jvp(f, qkv[:1], qkv[:1]), lambda: jax.jacfwd(f)(qkv[0])):
        with pytest.raises(lathe.UnsupportedError, match=FORWARD):
            call()
    # Under jit JAX says it, when the program is compiled.
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jit(lambda q: jax.jvp(f, (q,), (q,)))(qkv[0])


def test_jacrev(qkv):
    small = [t[:1, :1, :3, :2] for t in qkv]
    small = [jnp.pad(t, ((0, 0), (0, 0), (0, 0), (0, 6))) for t in small]
    ours = jax.jacrev(lambda q: lathe.jax.wrap("causal")(q, *small[1:])[..., :2])(small[0])
    same(ours, jax.jacrev(lambda q: plain(q, *small[1:])[..., :2])(small[0]))


def test_only_what_is_asked_for_is_differentiated(qkv):
    o_and_lse = lathe.jax.wrap("causal", results=("o", "lse"))
    lse = lambda q: jax.nn.logsumexp(
        jnp.where(jnp.tril(jnp.ones((6, 6), bool)), q @ qkv[1].swapaxes(-1, -2) / 8**0.5, -jnp.inf), -1
    )
    same(jax.grad(lambda q: o_and_lse(q, *qkv[1:])[1].sum())(qkv[0]), jax.grad(lambda q: lse(q).sum())(qkv[0]))


def test_under_scan_and_checkpoint(qkv):
    attend = lathe.jax.wrap("causal")

    def layers(f):
        body = jax.checkpoint(lambda q, _: (f(q, *qkv[1:]), None))
        return lambda q: jax.lax.scan(body, q, None, length=3)[0].sum()

    same(jax.grad(layers(attend))(qkv[0]), jax.grad(layers(plain))(qkv[0]))


def test_a_pool_of_states_has_no_gradient(rng):
    q, k, v = (jnp.asarray(rng.standard_normal((2, 1, 1, 8)), jnp.float32) for _ in range(3))
    step = lambda q: lathe.jax.wrap("linear")(
        q.reshape(1, 1, 2, 8), k.reshape(1, 1, 2, 8), v.reshape(1, 1, 2, 8), state=jnp.zeros((4, 1, 8, 8)),
        cu=jnp.asarray([0, 1, 2], jnp.int32), state_index=jnp.asarray([3, 1], jnp.int32),
    )  # fmt: skip
    jax.block_until_ready(step(q))
    with pytest.raises(lathe.ArgumentError, match="'state_index': a pool of states has no backward pass"):
        jax.grad(lambda q: step(q).sum())(q)


# ---- vmap ------------------------------------------------------------------------------------------------------------


def test_vmap_over_scalars_and_inputs(qkv):
    attend = lathe.jax.wrap(lathe.compile(SLOPES))
    gains, slopes = jnp.asarray([0.5, 2.0]), jnp.asarray([[0.1, 0.2, 0.3, 0.0], [0.0, 0.4, 0.1, 0.2]])
    loss = lambda f: lambda q, s, g: (f(q, s, g) ** 2).sum()
    ours = lambda q, s, g: attend(q, *qkv[1:], slopes=s, gain=g)
    theirs = lambda q, s, g: plain(q, *qkv[1:], s, g)
    same(jax.vmap(ours, (None, 0, 0))(qkv[0], slopes, gains), jax.vmap(theirs, (None, 0, 0))(qkv[0], slopes, gains))
    for axes in ((None, 0, 0), (None, None, 0), (None, 0, None)):
        args = (qkv[0], slopes if axes[1] == 0 else slopes[0], gains if axes[2] == 0 else gains[0])
        given = jax.vmap(jax.grad(loss(ours), (0, 1, 2)), axes)(*args)
        for a, b in zip(given, jax.vmap(jax.grad(loss(theirs), (0, 1, 2)), axes)(*args)):
            same(a, b, 1e-4)
