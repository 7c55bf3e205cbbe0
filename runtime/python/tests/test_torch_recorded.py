"""Programs that torch records or compiles, and what a call of lathe.Op, which no recorder sees, says in them."""

import io
import subprocess
import sys

import lathe
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
import lathe.torch  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention as sdpa  # noqa: E402

SLOPED = """return attention {
  inputs = { slopes = tensor("f32", "h") }, mask_mod = causal,
  score_mod = function(s, at, x) return s + x.slopes(at.h) * (at.kv - at.q) end }"""
RECORDED = "the program is being recorded .* leaves nothing in a record; lathe.torch.wrap"


def make(n=6, grad=False, seed=3):
    torch.manual_seed(seed)
    return [torch.randn(2, 2, n, 8, dtype=torch.float64, requires_grad=grad) for _ in range(3)]


def plain(q, k, v):
    return sdpa(q.sin(), k, v, is_causal=True) + q


def same(given, wanted, error=1e-10):
    torch.testing.assert_close(given, wanted, rtol=error, atol=error)


def same_with_gradients(given, wanted, tensors):
    same(given(*tensors), wanted(*tensors))
    grad = lambda f: torch.autograd.grad(f(*tensors).square().sum(), tensors)
    for one, other in zip(grad(given), grad(wanted)):
        same(one, other)


# ---- functions of lathe.torch ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("grad", [False, True])
def test_jit_trace(grad):
    attend = lathe.torch.wrap("causal")
    traced = torch.jit.trace(lambda q, k, v: attend(q.sin(), k, v) + q, tuple(make(grad=grad)))
    saved = io.BytesIO()
    torch.jit.save(traced, saved)
    saved.seek(0)
    for program in (traced, torch.jit.load(saved)):
        same_with_gradients(program, plain, make(7, grad=True, seed=4))
        same(program(*make(9)), plain(*make(9)))


def test_jit_trace_of_several_results_and_sizes():
    attend = lathe.torch.wrap("causal", layout="bshd", results=("lse", "o"))

    def run(x):
        lse, o = attend(*x.unflatten(-1, (3, 2, 4)).unbind(2))
        return o.flatten(2) * lse.exp().sum()

    x, other = (torch.randn(2, 6, 24, dtype=torch.float64) for _ in range(2))
    same(torch.jit.trace(run, x)(other), run(other))
    with lathe.torch.sdpa():
        traced = torch.jit.trace(plain, tuple(make()))
        same(traced(*make(7)), plain(*make(7)))
    same(traced(*make(7)), plain(*make(7)))


def test_functionalize():
    attend, (q, k, v) = lathe.torch.wrap("causal"), make()
    run = torch.func.functionalize(lambda q: attend(q.clone().add_(1), k, v))
    same(run(q), sdpa(q + 1, k, v, is_causal=True))
    same(make_fx(run)(q)(k), sdpa(k + 1, k, v, is_causal=True))
    with pytest.raises(lathe.UnsupportedError, match="torch.func's gradients do not go through"):
        torch.func.grad(lambda q: run(q).sum())(q)


@pytest.mark.parametrize("spec", [SLOPED, "return rowwise { forward = function(x) return x * rowmax(x) end }"])
def test_a_recorded_program_refuses_gradients_that_a_spec_has_not(spec):
    """It was recorded without gradients, and may be called with tensors that require them."""
    op = lathe.compile(spec)
    f = lathe.torch.wrap(op)
    q, k, v = (t.float() for t in make())
    slopes = torch.rand(2)
    others = {"slopes": slopes} if op.kind == "attention" else {}
    run = (lambda q, s: f(q, k, v, slopes=s)) if others else (lambda x, s: f(x.detach()) + s.sum())
    recorded = make_fx(run)(q, slopes)
    same(recorded(q, slopes), run(q, slopes))
    if others:
        with pytest.raises(lathe.ArgumentError, match="'slopes': requires a gradient, and spec has none for it"):
            recorded(q, slopes.clone().requires_grad_())


# ---- lathe.Op --------------------------------------------------------------------------------------------------------


def test_a_call_of_an_op_is_not_recorded():
    op = lathe.load("causal")
    run = lambda q, k, v: op(q, k, v) + q
    for record in (lambda: torch.jit.trace(run, tuple(make())), lambda: make_fx(run)(*make())):
        with pytest.raises(lathe.ArgumentError, match=RECORDED):
            record()

    class Model(torch.nn.Module):
        def forward(self, *tensors):
            return run(*tensors)

    with pytest.raises(Exception, match="expected a tensor with memory|being recorded"):
        torch.export.export(Model(), tuple(make()), strict=False)


def test_a_call_of_an_op_in_what_is_compiled():
    """It breaks the graph, and what it gives is its own."""
    op = lathe.load("causal")
    run = lambda q, k, v: op(q.sin(), k, v) + q
    compiled = torch.compile(run, backend="aot_eager")
    for n in (6, 7):
        same(compiled(*make(n)), plain(*make(n)))
    told = torch.compile(lambda q: q + len(op.explain(q, q, q)), backend="aot_eager")
    same(told(make()[0]), make()[0] + len(op.explain(*make())))
    with pytest.raises(lathe.ArgumentError, match="'q': requires a gradient"):
        compiled(*make(grad=True))
    with pytest.raises(Exception, match="no operator of torch; lathe.torch.wrap.op. makes a function that is"):
        torch.compile(lambda *tensors: op(*tensors), backend="aot_eager", fullgraph=True)(*make())


def test_a_call_of_an_op_in_torch_func():
    op = lathe.load("causal")
    q, k, v = make()
    for call in (lambda: torch.vmap(op)(q[None], k[None], v[None]), lambda: torch.func.jvp(op, (q, k, v), (q, k, v)),
                 lambda: torch.func.grad(lambda q: op(q, k, v).sum())(q)):  # fmt: skip
        with pytest.raises(lathe.ArgumentError, match="'q': a tensor of torch.func .* knows nothing"):
            call()
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(k, torch.ones_like(k))
        with pytest.raises(lathe.ArgumentError, match="'k': has a forward-mode derivative"):
            op(q, dual, v)
        same(op(q, k, v), sdpa(q, k, v, is_causal=True))


def test_nothing_is_said_at_the_end_of_a_program():
    """Modules are empty by then, and operators may be kept by whatever torch keeps."""
    text = "import lathe, torch, torch._dynamo\ntorch.kept = lathe.load('act_silu')\ntorch.kept(x=torch.ones(3))\n"
    text += "import builtins\nbuiltins.kept = torch.kept, lathe.Context('host')"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr
