"""Derivatives that specs do not have: refused by a sentence in every way in which torch asks, never dropped."""

import lathe
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
import lathe.torch  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention as sdpa  # noqa: E402

SECOND = "a derivative of a gradient is asked for"
FORWARD = "a forward-mode derivative is asked for"


@pytest.fixture
def qkv():
    torch.manual_seed(3)
    return [torch.randn(1, 2, 6, 4, dtype=torch.float64, requires_grad=True) for _ in range(3)]


def plain(q, k, v):
    return sdpa(q, k, v, is_causal=True)


def same(given, wanted, error=1e-10):
    torch.testing.assert_close(given, wanted, rtol=error, atol=error)


def attend():
    return lathe.torch.wrap("causal")


def loss(function):
    return lambda *tensors: function(*tensors).square().sum()


def refused(sentence=SECOND):
    return pytest.raises(lathe.UnsupportedError, match=sentence)


# ---- second derivatives ----------------------------------------------------------------------------------------------


def test_a_gradient_in_a_loss(qkv):
    f, (q, k, v) = attend(), qkv
    (g,) = torch.autograd.grad(f(q, k, v).sum(), q, create_graph=True)
    with refused():
        (f(q, k, v).square().sum() + g.square().sum()).backward()
    x = torch.randn(3, 8, dtype=torch.float64, requires_grad=True)
    weight = torch.ones(8, dtype=torch.float64)
    for spec, others in (("softmax", ()), ("rms_norm", (weight,)), ("swiglu", (x.detach(),))):
        (g,) = torch.autograd.grad(lathe.torch.wrap(spec)(x, *others).square().sum(), x, create_graph=True)
        with refused(f"{spec}: {SECOND}"):
            torch.autograd.grad(g.sum(), x)
    h = lathe.torch.wrap("linear")
    (g,) = torch.autograd.grad(h(q, k, v).sum(), v, create_graph=True)
    with refused():
        g.sum().backward()


def test_a_graph_that_nobody_uses_is_no_mistake(qkv):
    for given, wanted in zip(
        torch.autograd.grad(loss(attend())(*qkv), qkv, create_graph=True), torch.autograd.grad(loss(plain)(*qkv), qkv)
    ):
        same(given, wanted)
        assert given.requires_grad
    f, (q, k, v) = attend(), qkv
    (g,) = torch.autograd.grad(f(q, k, v).sum(), q, create_graph=True)
    (f(q, k, v).square().sum() + g.detach().square().sum()).backward()
    (wanted,) = torch.autograd.grad(loss(plain)(q, k, v), [q])
    same(q.grad, wanted)


def test_checks_of_torch(qkv):
    f = attend()
    assert torch.autograd.gradcheck(f, tuple(qkv), fast_mode=True)
    with refused():
        torch.autograd.gradgradcheck(f, tuple(qkv))
    with refused():
        torch.autograd.functional.hessian(loss(f), tuple(qkv))
    with refused():
        torch.autograd.functional.hvp(loss(f), tuple(qkv), tuple(t.detach() for t in qkv))
    same(torch.autograd.functional.jacobian(loss(f), tuple(qkv))[0], torch.autograd.grad(loss(plain)(*qkv), qkv)[0])


def test_torch_func(qkv):
    f, (q, k, v) = attend(), [t.detach() for t in qkv]
    one = lambda g: lambda q: loss(g)(q, k, v)
    same(torch.func.grad(one(f))(q), torch.func.grad(one(plain))(q))
    same(torch.func.jacrev(one(f))(q), torch.func.grad(one(plain))(q))
    with refused():
        torch.func.grad(lambda q: torch.func.grad(one(f))(q).sum())(q)
    with refused():
        torch.func.jacrev(torch.func.grad(one(f)))(q)
    with refused(f"{SECOND}|{FORWARD}"):
        torch.func.hessian(one(f))(q)
    with refused():
        torch.func.grad(lambda w: torch.func.grad(lambda q: (f(q, k, v) * w).sum())(q).square().sum())(q)


def test_compiled(qkv):
    q, k, v = qkv
    run = torch.compile(attend(), fullgraph=True, backend="aot_eager")
    with pytest.raises(RuntimeError, match="double backward|requires create_graph=False"):  # torch's own sentences
        (g,) = torch.autograd.grad(run(q, k, v).sum(), q, create_graph=True)
        g.square().sum().backward()


def test_torch_func_in_what_is_compiled(qkv):
    f, (q, k, v) = attend(), [t.detach() for t in qkv]
    run = torch.compile(torch.func.grad(lambda q: loss(f)(q, k, v)), fullgraph=True, backend="aot_eager")
    with pytest.raises(Exception, match="torch.func's gradients do not go through an operator"):
        run(q)


def test_results_of_several_kinds(qkv):
    f = lathe.torch.wrap("causal", results=("o", "lse"))
    o, lse = f(*qkv)
    (g,) = torch.autograd.grad(lse.sum(), qkv[0], create_graph=True)
    with refused():
        g.sum().backward()


# ---- forward mode ----------------------------------------------------------------------------------------------------


def test_forward_mode(qkv):
    f, (q, k, v) = attend(), [t.detach() for t in qkv]
    with refused(FORWARD):
        torch.func.jvp(lambda q: f(q, k, v), (q,), (torch.ones_like(q),))
    with refused(FORWARD):
        torch.func.jacfwd(lambda q: f(q, k, v).sum())(q)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(q, torch.ones_like(q))
        with refused(FORWARD):
            f(dual, k, v)
        with refused(FORWARD):
            f(dual, *qkv[1:])
        with refused(FORWARD):
            f.plain.operator(dual, k, v, *(None,) * (len(f.names) + len(f.numbers) - 3))
        same(f(q, k, v), plain(q, k, v))  # nothing to derive
    with refused(FORWARD):
        torch.func.jvp(lambda w: torch.func.grad(lambda q: (f(q, k, v) * w).sum())(q), (q,), (q,))


# ---- vmap ------------------------------------------------------------------------------------------------------------


def test_vmap_is_one_call_after_the_other(qkv):
    f = attend()
    q, k, v = (torch.randn(3, 1, 2, 6, 4, dtype=torch.float64) for _ in range(3))
    wanted = torch.stack([plain(*t) for t in zip(q, k, v)])
    same(torch.vmap(f)(q, k, v), wanted)
    same(torch.vmap(f, in_dims=(1, 0, 0))(q.transpose(0, 1), k, v), wanted)
    same(torch.vmap(f, in_dims=(0, None, None))(q, k[0], v[0]), torch.stack([plain(t, k[0], v[0]) for t in q]))
    same(torch.vmap(torch.vmap(f))(*(t[None] for t in (q, k, v)))[0], wanted)
    both = lathe.torch.wrap("causal", results=("o", "lse"))
    same(torch.vmap(both)(q, k, v)[0], wanted)
    w = torch.rand(3, 4, dtype=torch.float64)
    norm = lathe.torch.wrap("rms_norm")
    same(torch.vmap(norm)(q[:, 0, 0], w), torch.stack([norm(a, b) for a, b in zip(q[:, 0, 0], w)]))


def test_vmap_over_numbers(qkv):
    """Those with a gradient are tensors of a call; others are read on the host."""
    text = """return attention { inputs = { gain = scalar("f32", { grad = true }), n = scalar("i32", { default = 0 }) },
      mask_mod = causal, score_mod = function(s, at, x) return s * x.gain + x.n * at.kv end }"""
    f, (q, k, v) = lathe.torch.wrap(lathe.compile(text)), [t.detach() for t in qkv]
    gains = torch.tensor([0.5, 2.0], dtype=torch.float64)
    same(torch.vmap(lambda g: f(q, k, v, gain=g))(gains), torch.stack([plain(g * q, k, v) for g in gains]))
    with pytest.raises(lathe.ArgumentError, match="'n': a scalar is one number of a call, given one for each slice"):
        torch.vmap(lambda n: f(q, k, v, gain=0.5, n=n))(torch.arange(2))


def test_gradients_of_each_sample():
    f = attend()
    q, k, v = (torch.randn(3, 1, 2, 6, 4, dtype=torch.float64) for _ in range(3))
    per_sample = lambda g: torch.vmap(torch.func.grad(loss(g), argnums=(0, 1, 2)))(q, k, v)
    for given, wanted in zip(per_sample(f), per_sample(lambda *t: torch.softmax(scores(*t[:2]), -1) @ t[2])):
        same(given, wanted)
    through = torch.func.grad(lambda q: loss(torch.vmap(f))(q, k, v))(q)
    same(through, per_sample(f)[0])


def scores(q, k):
    n = q.shape[-2]
    return (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).masked_fill(~torch.ones(n, n).tril().bool(), -torch.inf)


# ---- seeds in a batch ------------------------------------------------------------------------------------------------


def test_batched_seeds(qkv):
    seeds = torch.randn(5, 1, 2, 6, 4, dtype=torch.float64)
    for create_graph in (False, True):
        grad = lambda g: torch.autograd.grad(g(*qkv), qkv, seeds, is_grads_batched=True, create_graph=create_graph)
        for given, wanted in zip(grad(attend()), grad(plain)):
            same(given, wanted)
    with refused():
        grad(attend())[0].sum().backward()
    o, lse = lathe.torch.wrap("causal", results=("o", "lse"))(*qkv)
    both = torch.autograd.grad((o, lse), qkv, (seeds, seeds[..., 0]), retain_graph=True, is_grads_batched=True)
    one = [torch.autograd.grad((o, lse), qkv, (s, s[..., 0]), retain_graph=True) for s in seeds]
    for given, wanted in zip(both, zip(*one)):
        same(given, torch.stack(wanted))


def test_jacobian_vectorized(qkv):
    jacobian = torch.autograd.functional.jacobian
    for given, wanted in zip(jacobian(attend(), tuple(qkv), vectorize=True), jacobian(plain, tuple(qkv))):
        same(given, wanted)
    with refused(FORWARD):
        jacobian(attend(), tuple(qkv), vectorize=True, strategy="forward-mode")
    gain = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    text = """return attention { inputs = { gain = scalar("f32", { grad = true }) },
      score_mod = function(s, at, x) return s * x.gain end }"""
    learned = lathe.torch.wrap(lathe.compile(text))
    f = lambda q, gain: learned(q, *qkv[1:], gain=gain)
    for given, wanted in zip(jacobian(f, (qkv[0], gain), vectorize=True), jacobian(f, (qkv[0], gain))):
        same(given, wanted)
