"""lathe.fla: FLA's functions beside a recurrence in float64, token by token, on the host device or a GPU; and FLA's
registry of backends, the installed one where there is one, else fla_registry.py. LATHE_TEST_LONG=1: 150 tokens."""

import importlib
import inspect
import math
import os

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
import fla_registry  # noqa: E402

import lathe  # noqa: E402
import lathe.fla as ours  # noqa: E402

DEVICE = os.environ.get("LATHE_TEST_DEVICE", "cpu")
DTYPE, BOUND = (torch.float64, 1e-9) if DEVICE == "cpu" else (torch.float32, 5e-3)
B, H, HV, D, V = 2, 2, 4, 16, 24
SLOTS = 16  # the fewest channels of values that a GPU serves
# LATHE_TEST_LONG=1: more than a chunk, as is worth while on a GPU.
T, STARTS = (150, [0, 70, 70, 129, 150]) if os.environ.get("LATHE_TEST_LONG") == "1" else (11, [0, 4, 4, 9, 11])


def naive(q, k, v, *, decay=None, beta=None, u=None, scale=None, state=None, norm=None, reverse=False,
          normalize=False, starts=None, unit=False, reads=None, writes=None, first=False, gate=None):  # fmt: skip
    """o, the last state and the last sum of keys. decay broadcasts over [b, t, h, d, d_v], and is a logarithm. reads,
    writes [b, t, h, d]: what reads the state, with `first` ahead of the decay, and what that is written under; a beta
    stands for both. gate: of v."""
    if starts is not None:
        cut = lambda x, n: None if x is None else x[:, starts[n] : starts[n + 1]]  # noqa: E731
        one = lambda x, n: None if x is None else x[n : n + 1]  # noqa: E731
        parts = [naive(cut(q, n), cut(k, n), cut(v, n), decay=cut(decay, n), beta=cut(beta, n), u=u, scale=scale,
                       state=one(state, n), norm=one(norm, n), reverse=reverse, normalize=normalize, unit=unit,
                       reads=cut(reads, n), writes=cut(writes, n), first=first,
                       gate=cut(gate, n))
                 for n in range(len(starts) - 1)]  # fmt: skip
        o, states, norms = zip(*parts)
        return torch.cat(o, 1), torch.cat(states), torch.cat(norms)
    v = v if gate is None else v * gate
    if unit:
        q, k = (x / (x.square().sum(-1, True) + 1e-6).sqrt() for x in (q, k))
    n_heads = v.shape[2]
    q, k = (x.repeat_interleave(n_heads // x.shape[2], 2) for x in (q, k))
    q = q * (q.shape[-1] ** -0.5 if scale is None else scale)
    S = q.new_zeros(q.shape[0], n_heads, q.shape[-1], v.shape[-1]) if state is None else state
    z = q.new_zeros(q.shape[0], n_heads, q.shape[-1]) if norm is None else norm
    rows = {}
    for t in range(q.shape[1])[:: -1 if reverse else 1]:
        key, value, query = k[:, t, :, :, None], v[:, t, :, None], q[:, t, :, :, None]
        before = S
        if decay is not None:
            S = S * decay[:, t].exp()
        reader = key if reads is None else reads[:, t, :, :, None]
        seen = (reader * (before if first else S)).sum(-2, True)
        if beta is not None:
            value = beta[:, t, :, None, None] * (value - seen)
        S = S + key * value
        if writes is not None:
            S = S + writes[:, t, :, :, None] * seen
        z = z + k[:, t]
        read = S if u is None else before + u[..., None] * key * value
        row = (query * read).sum(-2)
        rows[t] = row / ((q[:, t] * z).sum(-1, True) + 1e-10) if normalize else row
    o = torch.stack([rows[t] for t in sorted(rows)], 1) if rows else torch.zeros_like(v)
    return o, S, z


# ---- calls: how inputs are drawn, and what they mean -----------------------------------------------------------------


def draw(name, dims, b, t):
    """An input by the letters of its dims: what a decay, a beta, or anything else is like."""
    sizes = {"b": b, "t": t, "h": HV, "d": D, "v": V}
    shape = [sizes[letter] for letter in dims]
    if name in ("g", "g_gamma", "gk", "gv", "w"):
        return -torch.nn.functional.softplus(torch.randn(shape))
    return torch.rand(shape) if name == "beta" else torch.randn(shape)


def per_head(values):
    return torch.tensor(values, dtype=torch.float64, device=DEVICE)[None, None, :, None, None]


def token(x):
    return x[..., None, None]


def mamba(g, a, bias):
    return -a.exp() * torch.nn.functional.softplus(g + bias)


def case(name, inputs=None, rule=lambda a: {}, heads=(HV, HV), **options):
    return pytest.param(name, inputs or {}, rule, heads, options, id="-".join([name, *options]))


def retained(a):
    return {"decay": per_head([math.log(1 - 2 ** (-5.0 - h)) for h in range(HV)]).expand(*a.q.shape[:2], HV, 1, 1)}


def lightened(a):
    return {"decay": per_head([-8 / HV * (1 - 3 / 12) * h for h in range(HV)]).expand(*a.q.shape[:2], HV, 1, 1)}


def simple(a):
    g = a.get("g")
    total = (0 if g is None else g) + a.get("g_gamma", 0)
    return {"decay": token(total.expand(*a.q.shape[:2], HV))}


def with_bonus(a):
    return {"decay": a.w[..., None], "u": a.u}


def of_delta(**more):
    return lambda a: {"beta": a.beta, **{n: f(a) for n, f in more.items()}}


def of_rule(**more):
    more = {"reads": lambda a: a.a, "writes": lambda a: a.b, **more}
    return lambda a: {"first": True, **{n: f(a) for n, f in more.items()}}


def of_comba(a):
    p = a.get("p")
    if p is not None:
        p = p / (p.square().sum(-1, True) + 1e-6).sqrt()
    return {"decay": token(a.g), "beta": a.beta, "first": True, "reads": p}


def of_gdn2(a):
    return {"decay": a.g[..., None], "beta": torch.ones_like(a.w[..., 0]), "gate": a.w,
            "reads": a.b * a.k / (a.k.square().sum(-1, True) + 1e-6).sqrt()}  # fmt: skip


by_token = of_delta(decay=lambda a: token(a.g))
by_key = of_delta(decay=lambda a: a.g[..., None])
LAYER = {"layer_idx": 3, "num_layers": 12}
GROUPED = (H, HV)


CASES = [
    case("chunk_linear_attn", normalize=False),
    case("chunk_linear_attn", scale=0.3),
    case("fused_recurrent_linear_attn", reverse=True),
    case("fused_recurrent_linear_attn", reverse=True, normalize=True),
    case("chunk_retention", {}, retained),
    case("fused_recurrent_retention", {}, retained, reverse=True, state_v_first=True),
    case("chunk_lightning_attn", {}, lightened, **LAYER),
    case("fused_recurrent_lightning_attn", {}, lightened, **LAYER, reverse=True),
    case("chunk_simple_gla", {"g": "bth"}, simple, state_v_first=True),
    case("chunk_simple_gla", {"g_gamma": "h"}, simple, chunk_size=16),
    case("fused_chunk_simple_gla", {"g": "bth", "g_gamma": "h"}, simple),
    case("fused_recurrent_simple_gla", {"g": "bth"}, simple, reverse=True),
    case("chunk_gla", {"g": "bthd"}, lambda a: {"decay": a.g[..., None]}, scale=1.0),
    case("fused_recurrent_gla", {"gk": "bthd"}, lambda a: {"decay": a.gk[..., None]}, reverse=True),
    case("fused_recurrent_gla", {"gv": "bthv"}, lambda a: {"decay": a.gv[..., None, :]}),
    case("chunk_rwkv6", {"w": "bthd", "u": "hd"}, with_bonus),
    case("fused_recurrent_rwkv6", {"w": "bthd", "u": "hd"}, with_bonus, reverse=True),
    case("chunk_dplr_delta_rule", {"a": "bthd", "b": "bthd", "gk": "bthd"}, of_rule(decay=lambda a: a.gk[..., None])),
    case("fused_recurrent_dplr_delta_rule", {"a": "bthd", "b": "bthd", "gk": "bthd"},
         of_rule(decay=lambda a: a.gk[..., None]), reverse=True, scale=0.5),
    case("chunk_iplr_delta_rule", {"a": "bthd", "b": "bthd"}, of_rule()),
    case("fused_recurrent_iplr_delta_rule", {"a": "bthd", "b": "bthd"}, of_rule(), reverse=True),
    case("chunk_rwkv7", {"w": "bthd", "a": "bthd", "b": "bthd"}, of_rule(decay=lambda a: a.w[..., None]), scale=1.0),
    case("fused_recurrent_rwkv7", {"w": "bthd", "a": "bthd", "b": "bthd"}, of_rule(decay=lambda a: a.w[..., None])),
    case("fused_mul_recurrent_rwkv7", {"w": "bthd", "kk": "bthd", "a": "bthd"},
         of_rule(decay=lambda a: a.w[..., None], reads=lambda a: -a.kk, writes=lambda a: a.kk * a.a), scale=1.0,
         reverse=True),
    case("chunk_comba", {"p": "bthd", "g": "bth", "beta": "bth"}, of_comba, use_qk_l2norm_in_kernel=True),
    case("fused_recurrent_comba", {"g": "bth", "beta": "bth"}, of_comba, GROUPED, p=None, use_qk_l2norm_in_kernel=True),
    case("chunk_gdn2", {"g": "bthd", "b": "bthd", "w": "bthv"}, of_gdn2, use_qk_l2norm_in_kernel=True),
    case("chunk_delta_rule", {"beta": "bth"}, of_delta(), use_qk_l2norm_in_kernel=True),
    case("fused_recurrent_delta_rule", {"beta": "bth"}, of_delta(), use_qk_l2norm_in_kernel=True, scale=0.5),
    case("chunk_gated_delta_rule", {"g": "bth", "beta": "bth"}, by_token, GROUPED, use_qk_l2norm_in_kernel=True),
    case("fused_recurrent_gated_delta_rule", {"g": "bth", "gk": "bthd", "beta": "bth"},
         of_delta(decay=lambda a: token(a.g) + a.gk[..., None]), GROUPED, use_qk_l2norm_in_kernel=True),
    case("chunk_gated_delta_rule", {"g": "bth", "beta": "bth", "A_log": "h", "dt_bias": "h"},
         lambda a: {"decay": token(mamba(a.g, a.A_log, a.dt_bias)), "beta": 2 * a.beta.sigmoid()}, GROUPED,
         use_gate_in_kernel=True, use_beta_sigmoid_in_kernel=True, allow_neg_eigval=True,
         use_qk_l2norm_in_kernel=True, state_v_first=True),
    case("chunk_kda", {"g": "bthd", "beta": "bth"}, by_key, GROUPED, use_qk_l2norm_in_kernel=True),
    case("chunk_kda", {"g": "bthd", "beta": "bth", "A_log": "h", "dt_bias": "hd"},
         lambda a: {"decay": -5 * ((a.g + a.dt_bias) * a.A_log.exp()[:, None]).sigmoid()[..., None],
                    "beta": a.beta.sigmoid()}, GROUPED,
         use_gate_in_kernel=True, use_beta_sigmoid_in_kernel=True, use_qk_l2norm_in_kernel=True, lower_bound=-5.0,
         safe_gate=True),
    case("fused_recurrent_kda", {"g": "bthd", "beta": "bth", "A_log": "h", "dt_bias": "hd"},
         lambda a: {"decay": mamba(a.g, a.A_log[:, None], a.dt_bias)[..., None], "beta": a.beta}, GROUPED,
         use_gate_in_kernel=True, use_qk_l2norm_in_kernel=True),
]  # fmt: skip


class Inputs(dict):
    __getattr__ = dict.__getitem__


def leaves(inputs, heads, b, seqs, normalize):
    """Where rows are divided by a sum of keys, it stays away from 0."""
    torch.manual_seed(5)
    made = dict(q=torch.randn(b, T, heads[0], D), k=torch.randn(b, T, heads[0], D), v=torch.randn(b, T, heads[1], V))
    made |= {n: draw(n, dims, b, T) for n, dims in inputs.items()}
    made["state"] = torch.randn(seqs, HV, D, V)
    if normalize:
        made |= {"q": made["q"].abs(), "k": made["k"].abs(), "norm": torch.rand(seqs, 1, HV, D)}
    return Inputs({n: x.to(DEVICE, DTYPE).requires_grad_() for n, x in made.items()})


def gradients(results, tensors):
    torch.manual_seed(6)
    total = sum((r.double() * torch.randn_like(r, dtype=torch.float64)).sum() for r in results)
    return torch.autograd.grad(total, list(tensors.values()))


def compare(made, wanted, names):
    for name, one, other in zip(names, made, wanted):
        one, other = one.detach(), other.detach()
        worst = float((one.double() - other).abs().max()) / max(1.0, float(other.abs().max()))
        assert one.shape == other.shape and worst < BOUND, f"{name}: {list(one.shape)}, {worst:.2e}"


@pytest.mark.parametrize("packed", [False, True], ids=["batch", "packed"])
@pytest.mark.parametrize("name, inputs, rule, heads, options", CASES)
def test_function(name, inputs, rule, heads, options, packed):
    normalize = options.get("normalize", name == "chunk_linear_attn")
    a = leaves(inputs, heads, *((1, len(STARTS) - 1) if packed else (B, B)), normalize)
    first = options.get("state_v_first", False)
    given = a.state.transpose(-1, -2) if first else a.state
    call = {n: a[n].reshape(-1) if n == "dt_bias" else a[n] for n in inputs}
    if packed:
        call["cu_seqlens"] = torch.tensor(STARTS, device=DEVICE)
    function = getattr(ours, name)
    query = {"r" if "rwkv" in name else "q": a.q}
    o, final = function(**query, k=a.k, v=a.v, **call, **options, initial_state=(given, a.norm) if normalize else given,
                        output_final_state=True)  # fmt: skip
    made = [o, *(final if normalize else [final.transpose(-1, -2) if first else final])]
    exact = Inputs({n: x.detach().double().requires_grad_() for n, x in a.items()})
    wanted = naive(exact.q, exact.k, exact.v, **rule(exact), scale=options.get("scale"), state=exact.state,
                   norm=exact.norm.squeeze(1) if normalize else None, reverse=options.get("reverse", False),
                   normalize=normalize, starts=STARTS if packed else None,
                   unit=options.get("use_qk_l2norm_in_kernel", False))  # fmt: skip
    wanted = [wanted[0], wanted[1], wanted[2].unsqueeze(1)][: len(made)]
    compare(made, wanted, ["o", "final state", "final sum"])
    compare(gradients(made, a), gradients(wanted, exact), a)


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("decays", [True, False])
def test_delta_product(n, decays):
    """Steps of a token, one after the other: a recurrence of n tokens whose first decays and whose last is read."""
    torch.manual_seed(7)
    draw_of = lambda *shape: torch.randn(*shape, dtype=DTYPE, device=DEVICE)  # noqa: E731
    q, k, v = draw_of(B, T, H, D), draw_of(B, T * n, H, D), draw_of(B, T * n, HV, V)
    beta, state, g = draw_of(B, T * n, HV).sigmoid(), draw_of(B, HV, D, V), -draw_of(B, T, HV).square()
    given = {"q": q, "k": k, "v": v, "beta": beta, "state": state, **({"g": g} if decays else {})}
    for x in given.values():
        x.requires_grad_()
    low = given.get("g")
    o, final = ours.chunk_gated_delta_product(q, k, v, low, beta, n, initial_state=state,
                                              output_final_state=True, use_qk_l2norm_in_kernel=True)  # fmt: skip
    rows, S = [], state
    for t in range(T):
        one = lambda x: None if x is None else x[:, t : t + 1]  # noqa: E731
        for r in range(n):
            step = lambda x: x[:, t * n + r : t * n + r + 1]  # noqa: E731
            decay = None if low is None or r > 0 else token(one(low))
            row, S, _ = naive(one(q), step(k), step(v), decay=decay, beta=step(beta), state=S, unit=True)
        rows.append(row)
    made, wanted = [o, final], [torch.cat(rows, 1), S]
    compare(made, wanted, ["o", "final state"])
    compare(gradients(made, given), gradients(wanted, given), given)


@pytest.mark.parametrize("gated", [True, False])
def test_slots(gated):
    """Two recurrences, and a softmax over the slots between them."""
    torch.manual_seed(8)
    draw_of = lambda *shape: torch.randn(*shape, dtype=DTYPE, device=DEVICE)  # noqa: E731
    given = {"q": draw_of(B, T, H, D), "k": draw_of(B, T, H, D), "v": draw_of(B, T, H, V), "s": draw_of(B, T, H, SLOTS)}
    states = {"first": draw_of(B, H, D, SLOTS), "second": draw_of(B, H, SLOTS, V)}
    given |= {"g": -draw_of(B, T, H, SLOTS).square(), **states} if gated else states
    for x in given.values():
        x.requires_grad_()
    a = Inputs(given)
    g = a.get("g")
    call = {n: x for n, x in given.items() if n not in states}
    o, final = ours.chunk_gsa(**call, initial_state=(a.first, a.second), output_final_state=True)
    s = a.s
    if g is None:
        total = s.logcumsumexp(1)
        g, s = torch.cat((total[:, :1], total[:, :-1]), 1) - total, (s - total).exp()
    o1, first, _ = naive(a.q, a.k, s, decay=g[..., None, :], state=a.first)
    wanted, second, _ = naive(o1.softmax(-1), s, a.v, decay=g[..., None], scale=1.0, state=a.second)
    made, wanted = [o, *final], [wanted, first, second]
    compare(made, wanted, ["o", "first state", "second state"])
    compare(gradients(made, given), gradients(wanted, given), given)


def few(dtype=DTYPE, **more):
    """q, k, v, g, beta of a gated delta rule with more heads of values."""
    torch.manual_seed(7)
    q, k, v = torch.randn(B, T, H, D), torch.randn(B, T, H, D), torch.randn(B, T, HV, V)
    made = {"q": q, "k": k, "v": v, "g": draw("g", "bth", B, T), "beta": torch.rand(B, T, HV)}
    return {n: x.to(DEVICE, more.get(n, dtype)) for n, x in made.items()}


def test_decays_of_f32_beside_16_bits_stay_so():
    a = few(torch.bfloat16, g=torch.float32)
    a["g"].requires_grad_()
    state = torch.randn(B, HV, D, V, dtype=torch.bfloat16, device=DEVICE, requires_grad=True)
    with torch.autocast(DEVICE, torch.bfloat16):
        o, final = ours.chunk_gated_delta_rule(**a, initial_state=state, output_final_state=True,
                                               use_qk_l2norm_in_kernel=True)  # fmt: skip
    assert o.dtype is torch.bfloat16 and final.dtype is torch.float32
    exact = {n: x.detach().double() for n, x in a.items()}
    wanted = naive(exact["q"], exact["k"], exact["v"], decay=token(exact["g"]), beta=exact["beta"],
                   state=state.detach().double(), unit=True)  # fmt: skip
    assert float((final.detach().double() - wanted[1]).abs().max()) < (1e-6 if DEVICE == "cpu" else 2e-2)
    final.sum().backward()  # of the state alone
    assert a["g"].grad.dtype is torch.float32 and state.grad.dtype is torch.bfloat16


def test_a_state_that_nobody_asks_for_is_none():
    a = few()
    assert ours.chunk_gated_delta_rule(**a)[1] is None
    assert ours.chunk_linear_attn(a["q"], a["k"], a["q"])[1] is None
    three = a["q"], a["k"], a["q"]
    o, weights = ours.parallel_simple_gla(*three)
    assert weights is None and torch.equal(o, ours.chunk_linear_attn(*three, normalize=False)[0])
    assert torch.allclose(ours.parallel_retention(*three)[0], ours.chunk_retention(*three)[0])


def test_steps_meet_the_whole():
    a = few()
    whole, last = ours.fused_recurrent_gated_delta_rule(**a, output_final_state=True, use_qk_l2norm_in_kernel=True)
    state, rows = None, []
    for t in range(T):
        step = {n: x[:, t : t + 1] for n, x in a.items()}
        row, state = ours.fused_recurrent_gdn(**step, initial_state=state, output_final_state=True,
                                              use_qk_l2norm_in_kernel=True)  # fmt: skip
        rows.append(row)
    compare([torch.cat(rows, 1), state], [whole.double(), last.double()], ["o", "final state"])


def test_one_of_two_states_is_0():
    """FLA takes a state without its sum of keys, and the other way round."""
    a = few()
    q, k, v = a["q"].abs(), a["k"].abs(), a["q"]
    state = torch.randn(B, H, D, D, device=DEVICE)
    norm = torch.rand(B, 1, H, D, device=DEVICE)
    exact = [x.double() for x in (q, k, v)]
    for given, more in ((state, {"state": state.double()}), ((None, norm), {"norm": norm.squeeze(1).double()})):
        o, _ = ours.chunk_linear_attn(q, k, v, initial_state=given)
        compare([o], [naive(*exact, **more, normalize=True)[0]], ["o"])


def test_beta_may_be_absent():
    a = few()
    one = ours.fused_recurrent_delta_rule(a["q"], a["k"], a["v"], use_qk_l2norm_in_kernel=True)[0]
    other = ours.chunk_delta_rule(a["q"], a["k"], a["v"], torch.ones_like(a["beta"]), use_qk_l2norm_in_kernel=True)[0]
    assert torch.equal(one, other)


def test_compiled():
    a = few()
    step = lambda **a: ours.chunk_gated_delta_rule(**a, use_qk_l2norm_in_kernel=True)[0] * 2  # noqa: E731
    assert torch.allclose(torch.compile(step, backend="eager")(**a), step(**a))


def refusals():
    a = few()
    gated, kda = ours.chunk_gated_delta_rule, ours.chunk_kda
    per_key = {**a, "g": draw("g", "bthd", B, T).to(a["q"])}
    packed = {n: x[:1] for n, x in a.items()}
    cu = torch.tensor(STARTS, device=DEVICE)
    state = torch.zeros(B, HV, D, V, device=DEVICE)
    gla = (a["q"], a["k"], a["q"])
    return {
        "cp_context": (gated, {**a, "cp_context": object()}, "several devices"),
        "head_first": (gated, {**a, "head_first": True}, "transpose"),
        "cu_seqlens_cpu": (gated, {**packed, "cu_seqlens_cpu": cu.cpu()}, "goes with cu_seqlens, which is missing"),
        "use_graph": (kda, {**per_key, "use_graph": True}, "use_graph"),
        "return_intermediate_states": (kda, {**per_key, "return_intermediate_states": True}, "output_final_state"),
        "output_attentions": (ours.parallel_retention, dict(zip("qkv", gla), output_attentions=True), "weights"),
        "gk beside gv": (ours.fused_recurrent_gla, dict(zip("qkv", gla), gk=a["q"], gv=a["q"]), "give one of them"),
        "allow_neg_eigval": (gated, {**a, "allow_neg_eigval": True}, "use_beta_sigmoid_in_kernel"),
        "A_log": (gated, {**a, "use_gate_in_kernel": True}, "A_log: missing"),
        "beta of channels": (gated, {**a, "beta": torch.rand_like(a["v"])}, "per token and head"),
        "states of others": (gated, {**packed, "cu_seqlens": cu, "initial_state": state}, "4 sequences"),
        "batch of packed": (gated, {**a, "cu_seqlens": cu}, "1"),
        "scale": (gated, {**a, "scale": math.inf}, "finite"),
        "shape of g": (gated, {**a, "g": a["g"][:, 1:]}, "'g'"),
    }


@pytest.mark.parametrize("name", refusals())
def test_refused(name):
    function, named, word = refusals()[name]
    with pytest.raises(lathe.LatheError, match=word):
        function(**named)
    reason = _reason(function, named)
    assert word in reason


def _reason(function, named):
    try:
        return function.call_of(**named).refusal()
    except lathe.LatheError as error:
        return str(error)


def test_names_that_nobody_knows():
    with pytest.raises(TypeError, match="unexpected argument 'chunk'"):
        ours.chunk_gated_delta_rule(**few(), chunk=64)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'beta'"):
        ours.chunk_gated_delta_rule(*list(few().values())[:4])
    with pytest.warns(DeprecationWarning, match="state_v_first"):
        _, state = ours.chunk_gated_delta_rule(**few(), transpose_state_layout=True, output_final_state=True)
    assert state.shape == (B, HV, V, D)


def _wkv(w, u, k, v, state):
    """RWKV-4 token by token."""
    a, b, top = state[:, :, 0].unbind(1)
    w, o = -w.exp(), []
    for t in range(k.shape[1]):
        now = torch.maximum(u + k[:, t], top)
        old, new = (top - now).exp(), (u + k[:, t] - now).exp()
        o.append((old * a + new * v[:, t]) / (old * b + new))
        now = torch.maximum(w + top, k[:, t])
        old, new = (w + top - now).exp(), (k[:, t] - now).exp()
        a, b, top = old * a + new * v[:, t], old * b + new, now
    return torch.stack(o, 1), torch.stack([a, b, top], 1)[:, :, None]


@pytest.mark.parametrize("spread, fresh", [(1, False), (1, True), (300, False)])
def test_rwkv4(spread, fresh):
    """Keys from -300 to 300, of which no exponential is a number of f32, and a state that is none yet."""
    torch.manual_seed(5)
    channels, t = 48, T + 8
    k, v = (torch.randn(B, t, channels) for _ in "kv")
    state = torch.rand(B, 3, 1, channels)
    if fresh:
        state[:, :2], state[:, 2] = 0, -1e38
    given = [torch.randn(channels), torch.randn(channels), spread * k, v, state]
    given = [x.to(DEVICE, DTYPE).requires_grad_() for x in given]
    made, wanted = ours.fused_recurrent_rwkv4(*given), _wkv(*given)
    torch.testing.assert_close(made, wanted, rtol=BOUND, atol=BOUND)
    do, dlast = torch.randn_like(made[0]), torch.randn_like(made[1])
    grads = [torch.autograd.grad(x, given, [do, dlast]) for x in (made, wanted)]
    for name, one, other in zip("w u k v state".split(), *grads):
        if name == "state":
            one, other = one[:, :2] if fresh else one, other[:, :2] if fresh else other
        torch.testing.assert_close(one, other, rtol=100 * BOUND, atol=100 * BOUND)


# ---- FLA's registry --------------------------------------------------------------------------------------------------


@pytest.fixture(params=["in small", "installed"])
def fla(request, monkeypatch):
    if request.param == "installed":
        pytest.importorskip("fla.backends", reason="flash-linear-attention is not installed", exc_type=ImportError)
    else:
        fla_registry.install(monkeypatch)
    ours.register()
    return lambda name: importlib.import_module(f"fla.{name}")


def test_fla_runs_on_ours(fla):
    a = few()
    o, state = fla("ops.gated_delta_rule").chunk_gated_delta_rule(
        *a.values(), output_final_state=True, use_qk_l2norm_in_kernel=True, cu_seqlens_cpu=None)  # fmt: skip
    wanted = ours.chunk_gated_delta_rule(**a, output_final_state=True, use_qk_l2norm_in_kernel=True)
    assert torch.equal(o, wanted[0]) and torch.equal(state, wanted[1])
    a["g"] = draw("g", "bthd", B, T).to(a["q"]).requires_grad_()
    o, _ = fla("ops.kda").chunk_kda(**a, use_qk_l2norm_in_kernel=True)
    o.sum().backward()
    assert torch.equal(o, ours.chunk_kda(**a, use_qk_l2norm_in_kernel=True)[0]) and a["g"].grad is not None
    o, _ = fla("ops.simple_gla").fused_recurrent_simple_gla(a["q"], a["k"], a["q"], g=a["beta"][..., :H] - 1)
    assert torch.equal(o, ours.chunk_simple_gla(a["q"], a["k"], a["q"], a["beta"][..., :H] - 1)[0])


def test_fla_keeps_what_ours_refuses(fla, monkeypatch):
    def chunk_gated_delta_rule(*args, **named):
        return "FLA's own"

    function = fla("backends")._get_operation_registry("gated_delta_rule").dispatch(chunk_gated_delta_rule)
    a = few()
    assert torch.is_tensor(function(**a)[0])
    for name in ("cp_context", "beta of channels", "shape of g", "A_log"):
        _, named, word = refusals()[name]
        assert function(**named) == "FLA's own"
        assert word in ours.refused()["chunk_gated_delta_rule"]
    assert function(**a, chunk=3) == "FLA's own"
    monkeypatch.setenv("FLA_LATHE", "0")
    assert function(**a) == "FLA's own"


def test_state_is_written_over(fla):
    def fused_recurrent_kda_fwd(*args, **named):
        return "FLA's own"

    function = fla("backends")._get_operation_registry("kda").dispatch(fused_recurrent_kda_fwd)
    a = few()
    a["g"] = draw("g", "bthd", B, T).to(a["q"])
    state = torch.randn(B, HV, V, D).to(DTYPE).to(DEVICE)
    more = {"use_qk_l2norm_in_kernel": True, "state_v_first": True}
    wanted = ours.fused_recurrent_kda(**a, **more, initial_state=state.clone(), output_final_state=True)
    made = function(**a, **more, output_final_state=True, initial_state=state.clone(), inplace_final_state=False)
    assert all(torch.equal(x, y) for x, y in zip(made, wanted))
    o, last = function(**a, **more, initial_state=state)
    assert last is state
    torch.testing.assert_close((o, state), wanted)
    assert function(**a, initial_state=state.requires_grad_()) == "FLA's own"
    assert "no_grad" in ours.refused()["fused_recurrent_kda_fwd"]


def _pool_call(function, a, more, pool, index, starts, accepted=None):
    """A call by parts: each token's state is written to its slot."""
    o = torch.zeros_like(a["v"])
    for n, (first, end) in enumerate(zip(starts, starts[1:])):
        begin = 0 if accepted is None else int(accepted[n]) - 1
        state = pool[index[n, begin]][None].clone() if end > first else None
        for t in range(first, end):
            row = {name: x[:, t : t + 1] for name, x in a.items()}
            o[:, t : t + 1], state = function(**row, **more, initial_state=state, output_final_state=True)
            pool[index[n, t - first]] = state[0].to(pool.dtype)
    return o


@pytest.mark.parametrize("name", ["fused_recurrent_gated_delta_rule", "fused_recurrent_kda", "fused_recurrent_gla"])
def test_states_go_to_slots_of_a_pool(name):
    """As vLLM calls them: packed tokens of several sequences, of which the last call's have been taken in part."""
    function = getattr(ours, name)
    a = {n: x[:1] for n, x in few().items()}
    if name != "fused_recurrent_gated_delta_rule":
        a["g"] = draw("g", "bthd", 1, T).to(a["q"])
    if name == "fused_recurrent_gla":
        a = {"q": a["q"].repeat_interleave(2, 2), "k": a["k"].repeat_interleave(2, 2), "v": a["v"], "gk": a["g"]}
    more = {} if name == "fused_recurrent_gla" else {"use_qk_l2norm_in_kernel": True}
    width = max(end - first for first, end in zip(STARTS, STARTS[1:]))
    n = len(STARTS) - 1
    index = (torch.randperm(n * width).reshape(n, width) + 2).to(DEVICE)
    accepted = torch.tensor([2, 1, 3, 1], device=DEVICE)
    pool = torch.randn(n * width + 3, HV, D, V).to(DTYPE).to(DEVICE)
    wanted = pool.clone()
    o = _pool_call(function, a, more, wanted, index, STARTS, accepted)
    with torch.no_grad():
        made, same = function(**a, **more, initial_state=pool, ssm_state_indices=index, num_accepted_tokens=accepted,
                              cu_seqlens=torch.tensor(STARTS, device=DEVICE))  # fmt: skip
    assert same is pool
    torch.testing.assert_close((made, pool), (o, wanted), rtol=BOUND, atol=BOUND)


def test_one_token_of_each_sequence_and_slots_that_are_none():
    a = {n: x[:, :1] for n, x in few().items()}
    pool = torch.randn(5, HV, D, V).to(DTYPE).to(DEVICE)
    before = pool.clone()
    function = ours.fused_recurrent_gated_delta_rule
    o, _ = function(**a, initial_state=pool, ssm_state_indices=torch.tensor([3, -1], device=DEVICE))
    wanted, last = function(**{n: x[:1] for n, x in a.items()}, initial_state=before[3:4], output_final_state=True)
    torch.testing.assert_close(o[:1], wanted)
    assert (o[1] == 0).all()
    torch.testing.assert_close(pool[3], last[0])
    assert torch.equal(pool[[0, 1, 2, 4]], before[[0, 1, 2, 4]])
    with pytest.raises(lathe.ArgumentError, match=r"ssm_state_indices: expected a slot for each token, \[2, 11\]"):
        function(**few(), initial_state=pool, ssm_state_indices=torch.tensor([3, 1], device=DEVICE))
    with pytest.raises(lathe.UnsupportedError, match="the fused_recurrent functions take pools of states"):
        ours.chunk_kda(**few(), initial_state=pool, ssm_state_indices=torch.tensor([3, 1], device=DEVICE))


def test_order_of_backends(fla):
    registry = fla("backends")._get_operation_registry("gated_delta_rule")
    assert registry._backends["lathe"].priority == 4
    ours.register(priority=2)
    assert registry._backends["lathe"].priority == 2 and list(registry._backends).count("lathe") == 1


def test_signatures_are_fla_s():
    ops = pytest.importorskip("fla.ops", reason="flash-linear-attention is not installed", exc_type=ImportError)
    for name in set(ours.__all__) - {"register", "refused"}:
        theirs, mine = (inspect.signature(getattr(of, name)).parameters for of in (ops, ours))
        kept = {n: p.default for n, p in mine.items() if p.kind is p.POSITIONAL_OR_KEYWORD}
        wanted = {n: p.default for n, p in theirs.items() if p.kind is p.POSITIONAL_OR_KEYWORD}
        assert list(kept) == list(wanted) and kept == wanted, name
