"""lathe.torch on the host device: gradients in double precision, operators of torch.library, layouts, compilers."""

import sys

import lathe
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
import lathe.torch  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention as sdpa  # noqa: E402

BIASED = """return attention {
  mask_mod = causal,
  inputs = { table = tensor("float", "h", { grad = true }), gain = scalar("f32", { default = 1.0, grad = true }),
             shift = scalar("i32", { default = 0 }), doc = tensor("i32", "kv", { optional = true }) },
  score_mod = function(s, at, x) return x.gain * s + x.table(at.h) * (at.kv - at.q - x.shift) end,
}"""


@pytest.fixture
def qkv():
    torch.manual_seed(3)
    return [torch.randn(2, 2, 6, 8, dtype=torch.float64, requires_grad=True) for _ in range(3)]


def plain(q, k, v):
    return sdpa(q, k, v, is_causal=True)


def same(given, wanted, error=1e-10):
    torch.testing.assert_close(given, wanted, rtol=error, atol=error)


def gradients(function, tensors, seed=None):
    out = function(*tensors)
    return torch.autograd.grad((out * (torch.ones_like(out) if seed is None else seed)).sum(), tensors)


# ---- results and gradients -------------------------------------------------------------------------------------------


def test_forward_and_backward_are_those_of_torch(qkv):
    attend = lathe.torch.wrap("causal")
    same(attend(*qkv), plain(*qkv))
    seed = torch.randn(2, 2, 6, 8, dtype=torch.float64)
    for given, wanted in zip(gradients(attend, qkv, seed), gradients(plain, qkv, seed)):
        same(given, wanted)


def test_a_second_pair_has_gradients(qkv):
    torch.manual_seed(5)
    q, k, v = qkv
    q2, k2 = (torch.randn(2, 2, 6, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    whole = lambda q, k, v, q2, k2: sdpa(torch.cat([q, q2], -1), torch.cat([k, k2], -1), v, is_causal=True)
    tensors = (q, k, v, q2, k2)
    attend = lathe.torch.wrap(lathe.compile("return attention { qk2 = true, mask_mod = causal }"))
    same(attend(*tensors), whole(*tensors))
    for given, wanted in zip(gradients(attend, tensors), gradients(whole, tensors)):
        same(given, wanted)


def test_latents_are_values_beside_a_second_pair(qkv):
    """One head of latents for all query heads, tokens first: o has their width, and dk what they give as values."""
    torch.manual_seed(6)
    shapes = (1, 6, 4, 8), (1, 6, 1, 8), (1, 6, 4, 4), (1, 6, 1, 4)
    tensors = [torch.randn(*s, dtype=torch.float64, requires_grad=True) for s in shapes]

    def whole(q, k, q2, k2):
        keys, turn = torch.cat([k, k2], -1).expand(1, 6, 4, 12), lambda t: t.transpose(1, 2)
        o = sdpa(turn(torch.cat([q, q2], -1)), turn(keys), turn(k.expand(1, 6, 4, 8)), is_causal=True, scale=192**-0.5)
        return turn(o)

    attend = lathe.torch.wrap("mla_decoupled", layout="bshd")
    same(attend(*tensors), whole(*tensors))
    for given, wanted in zip(gradients(attend, tensors), gradients(whole, tensors)):
        same(given, wanted)


@pytest.mark.parametrize("spec", ["causal", "softcap", "sinks", "sigmoid"])
def test_gradcheck_of_attention(spec, qkv):
    op = lathe.load(spec)
    extra = {}
    for a in op.arguments:
        if a.is_input and not a.optional and a.shape_text == "[h]":
            extra[a.name] = torch.randn(2, dtype=torch.float64, requires_grad="d" + a.name in op.gradient.by_name)
        elif a.is_input and a.role == 2 and not a.optional:
            extra[a.name] = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    attend = lathe.torch.wrap(op)
    names = list(extra)
    run = lambda q, k, v, *more: attend(q, k, v, **dict(zip(names, more)))
    assert torch.autograd.gradcheck(run, (*qkv, *extra.values()), fast_mode=True)


def test_gradcheck_of_inputs_and_scalars(qkv):
    table = torch.randn(2, dtype=torch.float64, requires_grad=True)
    gain = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    attend = lathe.torch.wrap(lathe.compile(BIASED))
    run = lambda q, k, v, t, g: attend(q, k, v, table=t, gain=g, shift=1)
    assert torch.autograd.gradcheck(run, (*qkv, table, gain))


def test_gradcheck_of_other_kinds():
    x = torch.randn(4, 8, dtype=torch.float64, requires_grad=True)
    w = torch.randn(8, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lathe.torch.wrap("rms_norm"), (x, w))
    assert torch.autograd.gradcheck(lathe.torch.wrap("swiglu"), (x, x.detach().clone().requires_grad_()))
    q, k, v = (torch.randn(1, 2, 5, 8, dtype=torch.float64, requires_grad=True) for _ in range(3))
    assert torch.autograd.gradcheck(lathe.torch.wrap("linear"), (q, k, v), fast_mode=True)


def test_several_results_and_their_gradients(qkv):
    attend = lathe.torch.wrap("causal", results=("lse", "o"))
    lse, o = attend(*qkv)
    assert lse.shape == (2, 2, 6) and o.shape == (2, 2, 6, 8)
    scores = qkv[0] @ qkv[1].transpose(2, 3) / 8**0.5
    wanted = torch.logsumexp(scores.masked_fill(torch.ones(6, 6).triu(1).bool(), -torch.inf), -1)
    same(lse, wanted)
    for a, b in zip(torch.autograd.grad(lse.sum(), qkv[:2]), torch.autograd.grad(wanted.sum(), qkv[:2])):
        same(a, b)  # o has no gradient here: zeros take its place


@pytest.mark.parametrize("spec", ["rope_half", "rope_interleaved", "rms_norm", "swiglu", "causal"])
def test_only_what_the_backward_pass_reads_is_kept(spec, qkv):
    """rope turns gradients by angles alone: q and k are not kept, nor is y of a norm. Attention keeps q, k, v and o."""
    function = lathe.torch.wrap(spec)
    of_rope = [(1, 5, 2, 8), (1, 5, 1, 8)]
    shapes = {"rope_half": of_rope, "rope_interleaved": of_rope}
    shapes |= {"rms_norm": [(4, 8), (8,)], "swiglu": [(1, 1, 4, 8)] * 2}
    given = qkv if spec == "causal" else [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in shapes[spec]]
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.data_ptr()) or t, lambda t: t):
        outs = function(*given)
    outs = outs if isinstance(outs, tuple) else (outs,)
    kept = {"rope_half": 0, "rope_interleaved": 0, "rms_norm": 2, "swiglu": 2, "causal": 4}[spec]
    assert sum(t.data_ptr() in saved for t in (*given, *outs)) == kept
    assert torch.autograd.gradcheck(function, tuple(given), fast_mode=True)
    first = lambda *tensors: function(*tensors)[0] if len(outs) > 1 else function(*tensors)  # a seed that nobody gives
    assert torch.autograd.gradcheck(first, tuple(given[:1]) + tuple(t.detach() for t in given[1:]), fast_mode=True)


def steps_of(function):
    """What a call gives, and how many functions of Python and of C it calls: what it costs on the host."""
    function()
    n = 0

    def look(frame, event, _):
        nonlocal n
        n += event in ("call", "c_call")

    sys.setprofile(look)
    try:
        made = function()
    finally:
        sys.setprofile(None)
    return made, n


def test_a_call_takes_few_steps(qkv):
    """Host time is what a model of small layers waits for."""
    attend, plain = lathe.torch.wrap("causal"), [t.detach() for t in qkv]
    assert steps_of(lambda: attend(*plain))[1] <= 40
    o, n = steps_of(lambda: attend(*qkv))
    assert n <= 48
    seed = torch.ones_like(o)
    gradient_of = lambda made: steps_of(lambda: torch.autograd.grad(made, qkv, seed, retain_graph=True))[1]
    assert gradient_of(o) - gradient_of(qkv[0] + qkv[1] + qkv[2]) <= 75


def test_a_tensor_that_torch_func_has_left_behind(qkv):
    """It is that of which torch.func made it."""
    left = []
    torch.func.grad(lambda t: left.append(t) or t.sum())(qkv[0].detach())
    attend = lathe.torch.wrap("causal")
    same(attend(left[0], *qkv[1:]), attend(*qkv))
    torch.autograd.grad(attend(left[0], *qkv[1:]).sum(), qkv[1:])


def test_only_what_requires_a_gradient_gets_one(qkv):
    q, k, v = (t.detach() for t in qkv)
    k.requires_grad_()
    (dk,) = torch.autograd.grad(lathe.torch.wrap("causal")(q, k, v).sum(), [k])
    (wanted,) = torch.autograd.grad(plain(q, k, v).sum(), [k])
    same(dk, wanted)


def test_gradients_have_the_dtype_of_what_they_are_of(qkv):
    table = torch.randn(2, dtype=torch.float16, requires_grad=True)
    halves = [t.detach().half().requires_grad_() for t in qkv]
    out = lathe.torch.wrap(lathe.compile(BIASED))(*halves, table=table)
    made = torch.autograd.grad(out.float().sum(), [*halves, table])
    assert [g.dtype for g in made] == [torch.float16] * 4


# ---- layouts ---------------------------------------------------------------------------------------------------------


def test_layout_bshd(qkv):
    attend = lathe.torch.wrap("causal", layout="bshd")
    turned = [t.detach().transpose(1, 2).contiguous().requires_grad_() for t in qkv]
    o = attend(*turned)
    assert o.shape == (2, 6, 2, 8) and o.is_contiguous()
    same(o.transpose(1, 2), plain(*qkv))
    for given, wanted in zip(gradients(attend, turned), gradients(plain, qkv)):
        same(given.transpose(1, 2), wanted)


def test_layout_thd_of_packed_sequences(qkv):
    attend = lathe.torch.wrap("causal", layout="thd")
    flat = [t.detach().transpose(1, 2).reshape(12, 2, 8) for t in qkv]
    cu = torch.tensor([0, 6, 12], dtype=torch.int32)
    same(attend(*flat, cu_q=cu).view(2, 6, 2, 8).transpose(1, 2), plain(*qkv))


@pytest.mark.parametrize("layout", ["bhsd", "bshd", "thd"])
@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_of_keys_in_pages(layout, compiled):
    """Pools have heads and tokens as the layout says, but beside packed queries as the library has them."""
    torch.manual_seed(2)
    table = torch.tensor([[2, 0], [2, 4], [1, 3]], dtype=torch.int32)
    lists = {"pages": table, "used_kv": torch.tensor([8, 6, 0], dtype=torch.int32)}
    q, do = (torch.randn(3, 4, 5, 8, dtype=torch.float64) for _ in range(2))
    pools = [torch.randn(6, 2, 4, 8, dtype=torch.float64) for _ in range(2)]
    turned = (lambda t: t.transpose(1, 2).contiguous()) if layout != "bhsd" else lambda t: t
    rows = (lambda t: turned(t).reshape(15, 4, 8)) if layout == "thd" else turned
    in_pool = turned if layout == "bshd" else lambda t: t
    if layout == "thd":
        lists["cu_q"] = torch.tensor([0, 5, 10, 15], dtype=torch.int32)
    attend = lathe.torch.wrap("causal", layout=layout)
    call = torch.compile(attend, backend="aot_eager") if compiled else attend
    leaves = [t.clone().requires_grad_() for t in (rows(q), *map(in_pool, pools))]
    call(*leaves, **lists).backward(rows(do))

    dense = [q.clone().requires_grad_(), *(p.clone().requires_grad_() for p in pools)]
    keys = [p[table.long()].transpose(1, 2).reshape(3, 2, 8, 8) for p in dense[1:]]
    lathe.torch.wrap("causal")(dense[0], *keys, used_kv=lists["used_kv"]).backward(do)
    same(leaves[0].grad, rows(dense[0].grad))
    same(leaves[1].grad, in_pool(dense[1].grad))
    same(leaves[2].grad, in_pool(dense[2].grad))


def test_strides_are_taken_as_they_are(qkv):
    q, k, v = (t.detach() for t in qkv)
    attend = lathe.torch.wrap("causal")
    one = k[:, :1].expand(-1, 2, -1, -1)
    same(attend(q, one, v), plain(q, one, v))
    wide = torch.randn(2, 2, 6, 16, dtype=torch.float64)[..., ::2]
    same(attend(wide, k, v), plain(wide, k, v))
    fused = torch.randn(2, 6, 3, 2, 8, dtype=torch.float64)
    parts = [p.transpose(1, 2) for p in fused.unbind(2)]
    same(attend(*parts), plain(*parts))
    o = attend(q.requires_grad_(), k, v)
    o.sum().backward()  # the gradient of a plain sum has strides of 0
    assert q.grad is not None


# ---- what watches ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_opcheck(qkv, layout):
    attend = lathe.torch.wrap("causal", layout=layout, results=("o", "lse"))
    nothing = (None,) * (len(attend.names) - 3 + len(attend.numbers))
    for operator in (attend.plain.operator, attend.training.operator):
        torch.library.opcheck(operator, (*qkv, *nothing))


def test_opcheck_of_inputs(qkv):
    attend = lathe.torch.wrap(lathe.compile(BIASED))
    table = torch.randn(2, dtype=torch.float64, requires_grad=True)
    gain = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    values = {"q": qkv[0], "k": qkv[1], "v": qkv[2], "table": table, "gain": gain, "shift": 2}
    args = tuple(values.get(n) for n in attend.names + attend.numbers)
    torch.library.opcheck(attend.training.operator, args)


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile_without_graph_breaks(qkv, dynamic):
    attend = lathe.torch.wrap("causal", layout="bshd")

    def block(q, k, v):
        return torch.tanh(attend(2 * q, k + 1, v))

    compiled = torch.compile(block, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for n in (6, 7, 9):
        turned = [torch.randn(2, n, 2, 8, dtype=torch.float64, requires_grad=True) for _ in range(3)]
        same(compiled(*turned), block(*turned))
        for given, wanted in zip(gradients(compiled, turned), gradients(block, turned)):
            same(given, wanted)


def test_inductor_is_told_of_operators_before_it_meets_them(qkv):
    """What Inductor has to find out by itself it prints first, which is exponential in the depth of a model."""
    lowering = pytest.importorskip("torch._inductor.lowering")
    attend = lathe.torch.wrap(lathe.compile(BIASED))
    table = torch.randn(2, dtype=torch.float64, requires_grad=True)
    run = lambda q, k, v, t: attend(q, k, v, table=t, shift=1)
    gradients(torch.compile(run, fullgraph=True, backend="aot_eager"), [*qkv, table])
    told = {str(f).partition(".")[2] for f in lowering.lowerings if str(f).startswith("lathe.")}
    forward = attend.training.operators.stem
    assert any(name.startswith(forward + ".") for name in told), told
    assert any(name.startswith(forward + "_backward_") for name in told), told


def test_compile_with_inputs_and_no_grad(qkv):
    attend = lathe.torch.wrap(lathe.compile(BIASED))
    table = torch.randn(2, dtype=torch.float64, requires_grad=True)
    run = lambda q, k, v, t: attend(q, k, v, table=t, shift=1)
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    for given, wanted in zip(gradients(compiled, [*qkv, table]), gradients(run, [*qkv, table])):
        same(given, wanted)
    with torch.no_grad():
        same(compiled(*qkv, table), run(*qkv, table))


def test_checkpoint(qkv):
    from torch.utils.checkpoint import checkpoint

    attend = lathe.torch.wrap("causal")
    wanted = gradients(plain, qkv)
    for given, right in zip(gradients(lambda *t: checkpoint(attend, *t, use_reentrant=False), qkv), wanted):
        same(given, right)
    checkpoint(attend, *qkv, use_reentrant=True).sum().backward()
    for tensor, right in zip(qkv, wanted):
        same(tensor.grad, right)


def test_autocast(qkv):
    attend = lathe.torch.wrap("causal")
    singles = [t.detach().float().requires_grad_() for t in qkv]
    with torch.autocast("cpu", torch.bfloat16):
        o = attend(*singles)
        compiled = torch.compile(attend, fullgraph=True, backend="aot_eager")(*singles)
    assert o.dtype == compiled.dtype == torch.bfloat16
    same(o.float(), plain(*(t.bfloat16().float() for t in singles)), 2e-2)
    same(compiled, o, 0)
    assert [g.dtype for g in torch.autograd.grad(o.sum(), singles)] == [torch.float32] * 3


def test_functorch_gradients(qkv):
    attend = lathe.torch.wrap("causal")
    q, k, v = (t.detach() for t in qkv)
    same(torch.func.grad(lambda q: attend(q, k, v).sum())(q), torch.func.grad(lambda q: plain(q, k, v).sum())(q))


def test_a_parameter_is_a_tensor(qkv):
    q, k, v = (t.detach() for t in qkv)
    p = torch.nn.Parameter(q)
    lathe.torch.wrap("causal")(p, k, v).sum().backward()
    (wanted,) = torch.autograd.grad(plain(p, k, v).sum(), [p])
    same(p.grad, wanted)


# ---- what is refused -------------------------------------------------------------------------------------------------


def test_refusals(qkv):
    attend = lathe.torch.wrap("causal")
    q, k, v = qkv
    with pytest.raises(lathe.ArgumentError, match="'v': missing"):
        attend(q, k)
    with pytest.raises(lathe.ArgumentError, match="expected shape"):
        attend(q, k, v[:, :, :3])
    with pytest.raises(lathe.ArgumentError, match="makes a function that has it"):
        attend(q, k, v, lse=True)
    with pytest.raises(lathe.ArgumentError, match="has no result 'weights'"):
        lathe.torch.wrap("causal", results=("weights",))
    with pytest.raises(lathe.ArgumentError, match="layout: expected one of"):
        lathe.torch.wrap("causal", layout="hbsd")
    with pytest.raises(lathe.ArgumentError, match="no tensors of heads"):
        lathe.torch.wrap("rms_norm", layout="bshd")
    with pytest.raises(lathe.ArgumentError, match="lathe.torch.call"):
        lathe.load("causal")(q, k, v)  # would have no gradient
    with pytest.raises(lathe.ArgumentError, match=r"'cu_q': expected dtype i32, given float32"):
        attend(q[:1], k[:1], v[:1], cu_q=torch.tensor([0.0, 6.0]))


def test_a_gradient_that_a_spec_has_not_is_refused(qkv):
    text = """return attention {
      inputs = { slopes = tensor("f32", "h") },
      score_mod = function(s, at, x) return s + x.slopes(at.h) * at.kv end }"""
    attend = lathe.torch.wrap(lathe.compile(text))
    slopes = torch.zeros(2, dtype=torch.float64)
    attend(*qkv, slopes=slopes)
    with pytest.raises(lathe.ArgumentError, match="'slopes': requires a gradient"):
        attend(*qkv, slopes=slopes.requires_grad_())


def test_a_new_context_serves_calls_that_were_prepared_with_another(qkv):
    attend = lathe.torch.wrap("causal")
    before = attend(*qkv)
    plans = [p for p in lathe.torch._passes._all if p.plans]
    assert plans
    try:
        lathe.set_context(lathe.Context("host", deterministic="batch"))
        assert not any(p.plans for p in plans)
        same(attend(*qkv), before, 0.0)
        used = {plan.launch.__self__.context for p in plans for plan in p.plans.values()}
        assert {context.deterministic for context in used} == {"batch"}
    finally:
        lathe.set_context(lathe.Context("host"))
