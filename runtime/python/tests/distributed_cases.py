"""What ranks do in tests of lathe.torch.distributed: a call over all of them beside one that has everything, which each
rank computes for itself from the same seed."""

import traceback

import lathe
import lathe.draw
import lathe.torch
import lathe.torch.distributed as ld
import numpy as np
import torch
import torch.distributed as dist
from lathe import _library as c

B, H, H_KV, D, D2, OWN = 1, 6, 3, 16, 8, 40


def me():
    return dist.get_rank(), dist.get_world_size()


def on_gpus():
    """Ranks that NCCL connects, whose default device is their GPU; kernels there have no f64."""
    return dist.get_backend() == "nccl"


def real():
    return torch.float32 if on_gpus() else torch.float64


def here(x):
    """An array as a tensor of this rank's device; f64 in its real dtype."""
    x = torch.as_tensor(x)
    return x.to("cuda" if on_gpus() else "cpu", real() if x.dtype == torch.float64 else None)


def drawn(op, operands):
    """Inputs of a spec that the library takes beside these operands: see lathe.draw. Floats are f64. What a rule takes
    away along a vector that is not of length 1 makes its state grow without end."""
    given = {n: x.detach().cpu().double().numpy() for n, x in operands.items()}
    missing = [a for a in op.forward.arguments if a.is_input and a.role != c.RESULT]
    if op.kind == "attention":
        missing = [a for a in missing if not a.optional or "d" + a.name in op.gradient.by_name]
    else:
        missing = [a for a in missing if not a.optional]
    tried = {a.name: 0 for a in missing}
    while True:
        rng = np.random.default_rng(5)
        made = {a.name: lathe.draw._drawn(op, a, given, rng, tried[a.name], OWN) for a in missing}
        try:
            op(**given, **made)
            if "kappa" in made:
                made["kappa"] /= np.linalg.norm(made["kappa"], axis=-1, keepdims=True)
            return {n: here(x) if isinstance(x, np.ndarray) else x for n, x in made.items()}
        except lathe.ArgumentError as error:
            named = [n for n in tried if f"'{n}'" in str(error)]
            assert named and all(tried[n] + 1 < len(lathe.draw._FLOATS) for n in named), error
            for n in named:
                tried[n] += 1


def operands_of(op, q, kv, seed=3):
    torch.manual_seed(seed)
    sizes = {"b": B, "h": H, "h_kv": H_KV, "h_k": H_KV, "q": q, "kv": kv, "t": kv, "d": D, "d_v": D, "d2": D2}
    made = {}
    for a in op.forward.tensors:
        if not a.optional and not a.is_input:
            made[a.name] = torch.randn([sizes[d.name] for d in a.dims], dtype=real())
    return made


def with_gradients(op, tensors):
    for n, x in tensors.items():
        if isinstance(x, torch.Tensor) and "d" + n in op.gradient.by_name and x.is_floating_point():
            tensors[n] = x.detach().requires_grad_()
    return tensors


def piece(x, dim, lengths, order="contiguous", chunk=0):
    from lathe.torch.distributed._shards import Shards

    return Shards(lengths, order, chunk).take(x, dim, me()[0])


def close(given, wanted, what, error=1e-9):
    error = max(error, 2e-3) if on_gpus() else error
    torch.testing.assert_close(given, wanted, rtol=error, atol=error, msg=lambda m: f"{what}: {m}")


def summed(x):
    dist.all_reduce(x)
    return x


def whole_call(op, operands, inputs, results=()):
    """Results of one rank that has everything, the seeds of a backward pass, and all gradients by name."""
    leaves = with_gradients(op, {**operands, **inputs})
    made = lathe.torch.wrap(op, results=results)(**leaves)
    made = list(made) if isinstance(made, tuple) else [made]
    torch.manual_seed(11)
    seeds = [torch.randn_like(t) for t in made]
    pairs = [(t, s) for t, s in zip(made, seeds) if t.requires_grad]
    named = {n: x for n, x in leaves.items() if isinstance(x, torch.Tensor) and x.requires_grad}
    made_of, of_them = [t for t, _ in pairs], [s for _, s in pairs]
    gradients = torch.autograd.grad(made_of, list(named.values()), of_them, allow_unused=True) if named else ()
    return [t.detach() for t in made], seeds, dict(zip(named, gradients))


def cut_is_whole(name, scheme, q_lengths, kv_lengths, order="contiguous", results=(), text=None, **params):
    """Forward and gradients of a spec of attention over ranks that have so many queries and keys."""
    op = lathe.compile(text) if text else lathe.load(name, **params)
    operands = operands_of(op, sum(q_lengths), sum(kv_lengths))
    inputs = drawn(op, operands)
    wanted, seeds, gradients = whole_call(op, operands, inputs, results)
    by_queries = lambda n: n in ("q", "q2")
    own = {n: piece(x, 2, q_lengths if by_queries(n) else kv_lengths, order) for n, x in operands.items()}
    own = with_gradients(op, {**own, **inputs})
    attend = ld.wrap(op, scheme=scheme, order=order, results=results)
    made = attend(**own)
    made = list(made) if isinstance(made, tuple) else [made]
    for given, whole in zip(made, wanted):
        close(given.detach(), piece(whole, 2, q_lengths, order), name)
    pairs = [(t, piece(s, 2, q_lengths, order)) for t, s in zip(made, seeds) if t.requires_grad]
    if not gradients:
        return
    torch.autograd.backward([t for t, _ in pairs], [s for _, s in pairs])
    for n, gradient in gradients.items():
        given = own[n].grad
        if n in operands:
            wanted_here = piece(gradient, 2, q_lengths if by_queries(n) else kv_lengths, order)
        else:
            wanted_here = gradient
            given = summed(torch.zeros_like(own[n]) if given is None else given)
        close(given, wanted_here, f"{name}: d{n}", 1e-8)


def ring_results():
    """A final with a gradient of its own, a call without gradients, and the same bits twice."""
    cut_is_whole("causal", "ring", (6, 8), (6, 8), results=("o", "lse"))
    cut_is_whole("causal", "ring", (8, 8), (8, 8), "zigzag", results=("lse", "o"))
    torch.manual_seed(1)
    q, k, v = (ld.shard(torch.randn(1, 2, 16, 16, dtype=real()), 2, order="zigzag") for _ in range(3))
    attend = ld.wrap("causal", scheme="ring", order="zigzag")
    with torch.no_grad():
        first = attend(q, k, v)
        assert torch.equal(first, attend(q, k, v)) and not first.requires_grad
    with torch.autocast(q.device.type, torch.bfloat16):
        assert attend(*(x.float() for x in (q, k, v))).dtype == torch.bfloat16


def attention_specs(names, scheme, q_lengths, kv_lengths, order="contiguous"):
    each(names, lambda name: cut_is_whole(name, scheme, q_lengths, kv_lengths, order))


def each(names, function):
    """Errors of all of them; a rank goes on with the next, as the others do."""
    wrong = []
    for name in names:
        try:
            function(name)
        except Exception as error:
            wrong.append(f"{name}: {traceback.format_exc() if not wrong else error}")
    assert not wrong, "\n".join(wrong)


def keys_are_whole(names, q, kv_lengths, chunk=0):
    """chunk: shards are interleaved."""
    order = {"order": "interleaved", "interleave": chunk} if chunk else {}
    for name in names:
        op = lathe.load(name)
        operands = operands_of(op, q, sum(kv_lengths))
        inputs = drawn(op, operands)
        finals = tuple(r.name for r in op.forward.results if r.name not in ("o", "part_o", "part_rows"))
        wanted = lathe.torch.wrap(op, results=("o", *finals))(**operands, **inputs)
        own = {n: x if n in ("q", "q2") else piece(x, 2, kv_lengths, order.get("order", "contiguous"), chunk)
               for n, x in operands.items()}  # fmt: skip
        attend = ld.wrap(op, queries="whole", results=("o", *finals), **order)
        made = attend(**own, **inputs)
        for given, whole in zip(made if finals else [made], wanted if finals else [wanted]):
            close(given, whole, name)


def refused_alike(kind, sentence, name, tensors, options, **inputs):
    """On every rank, with one sentence."""
    attend = ld.wrap(name, **options)
    try:
        attend(*tensors, **inputs)
    except kind as error:
        assert sentence in str(error), error
    else:
        raise AssertionError("it was taken")


def different_calls():
    rank, _ = me()
    q = torch.randn(1, 2, 4, 16 if rank else 32)
    differ = "the elements of a row of q of rank 1 and of rank 0 differ"
    refused_alike(lathe.ArgumentError, differ, "full", (q, q, q), {})
    q = torch.randn(1, 2, 4, 16)
    refused_alike(lathe.LatheError if not rank else lathe.ArgumentError,
                  "rank 1 has given up before anything was sent" if not rank else "argument 'q': expected 4 dims",
                  "full", (q[0], q, q) if rank else (q, q, q), {})  # fmt: skip


def refusals():
    q, k = torch.randn(1, 2, 4, 16), torch.randn(1, 1, 4, 16)
    no = lathe.UnsupportedError
    few = "1 key heads cannot be shared out to 2 ranks; scheme 'gather'"
    refused_alike(no, few, "full", (q, k, k), {"scheme": "heads"})
    x = {"first": torch.zeros(1, 1, dtype=torch.int32), "last": torch.ones(1, 1, dtype=torch.int32)}
    counts = "it counts queries, by at.row or at.len_q (line 5 of the spec), and the queries of a rank are not all"
    for scheme in ("gather", "ring"):
        refused_alike(no, f"{counts}; scheme 'heads' serves it", "flamingo", (q, q, q), {"scheme": scheme}, **x)
    refused_alike(no, "no scheme serves it over 2 ranks: heads: 1 key heads", "flamingo", (q, k, k), {}, **x)
    refused_alike(no, "it needs all queries on every rank", "full", (q, q, q), {"scheme": "keys"})
    trained = q.clone().requires_grad_()
    refused_alike(no, "has no gradients; call it under torch.no_grad()", "full", (trained, q, q), {"queries": "whole"})
    wrong = lathe.ArgumentError
    refused_alike(wrong, "'h_start': the scheme says which", "full", (q, q, q), {}, h_start=0)
    refused_alike(wrong, "'zigzag' takes as many tokens on every rank", "full", (q[:, :, :3],) * 3, {"order": "zigzag"})
    apart = {"order": "interleaved", "interleave": 3}
    refused_alike(wrong, "chunks of 3 of all 8 tokens leave ranks [5, 3] of them; given [4, 4]", "full", (q, q, q),
                  {"queries": "whole", **apart})  # fmt: skip
    refused_alike(wrong, "interleave: expected the tokens of a chunk, 1 to 1073741823, given 1073741824", "full",
                  (q, q, q), {"queries": "whole", "order": "interleaved", "interleave": 2**30})  # fmt: skip
    refused_alike(no, "'gather': interleaved shards are of caches", "full", (q, q, q),
                  {"scheme": "gather", "order": "interleaved", "interleave": 4})  # fmt: skip
    refused_alike(wrong, "'kv_step': the scheme says which", "full", (q, q, q), {}, kv_step=4)
    refused_alike(wrong, "lengths: expected 2 numbers, and 4 tokens of q", "full", (q, q, q), {}, lengths=(3, 5))


def explained():
    q, k = torch.randn(1, 8, 64, 16), torch.randn(1, 2, 64, 16)
    text = ld.wrap("causal").explain(q, k, k)
    assert text.startswith("causal: scheme gather over 2 ranks: it sends the least\n"), text
    assert "a rank sends 16.0 KiB, backward 16.0 KiB: k and v to all others at once" in text, text
    assert "heads: serves, and sends 40.0 KiB" in text, text
    assert "ring: serves, and sends 16.0 KiB" in text, text
    text = ld.wrap("causal").explain(q, q, q)
    assert text.startswith("causal: scheme heads over 2 ranks"), text
    assert ld.wrap("causal", queries="whole").explain(q, k, k).startswith("causal: scheme keys over 2 ranks: the only")


class Counted:
    """Bytes that this rank sends to others, while it is entered."""

    NAMES = ("exchange", "gather", "pass_on")

    def __enter__(self):
        from lathe.torch.distributed._ranks import Ranks

        self.ranks, self.kept, self.sent = Ranks, {n: getattr(Ranks, n) for n in self.NAMES}, 0

        def exchange(ranks, send, shapes, dtype, device):
            self.sent += dtype.itemsize * sum(t.numel() for r, of in enumerate(send) if r != ranks.me for t in of)
            return self.kept["exchange"](ranks, send, shapes, dtype, device)

        def gather(ranks, mine, shapes, dtype, device):
            most = max(sum(torch.Size(s).numel() for s in of) for of in shapes)
            self.sent += dtype.itemsize * most * (ranks.count - 1)
            return self.kept["gather"](ranks, mine, shapes, dtype, device)

        def pass_on(ranks, send, size):
            self.sent += send.numel() * send.element_size()
            return self.kept["pass_on"](ranks, send, size)

        Ranks.exchange, Ranks.gather, Ranks.pass_on = exchange, gather, pass_on
        return self

    def __exit__(self, *_):
        for name in self.NAMES:
            setattr(self.ranks, name, self.kept[name])


def sent_is_said(name, scheme, dtype=torch.float32, order="contiguous", results=(), tokens=12):
    """What explain() says that a rank of equal shards sends, on average where heads are shared out unevenly, is what
    ranks send, both passes."""
    from lathe.torch.distributed import _choice

    op, whole_q = lathe.load(name), scheme == "keys"
    operands = operands_of(op, tokens, tokens)
    inputs = drawn(op, operands)
    each = [tokens // me()[1]] * me()[1]
    linear = op.kind == "linear_attention"
    dim_of = lambda n: next((i for i, d in enumerate(op.forward.by_name[n].dims) if d.name == "t"), None)
    cut_at = lambda n: dim_of(n) if linear else None if n in inputs or (whole_q and n in ("q", "q2")) else 2
    cut = lambda n, x: x if cut_at(n) is None or not torch.is_tensor(x) else piece(x, cut_at(n), each, order)
    typed = lambda n, x: x.to(dtype if n in operands else torch.promote_types(dtype, torch.float32))
    real_one = lambda x: torch.is_tensor(x) and x.is_floating_point()
    own = {n: cut(n, typed(n, x) if real_one(x) else x) for n, x in {**operands, **inputs}.items()}
    own = own if whole_q else with_gradients(op, own)
    attend = ld.wrap(op, scheme=scheme, order=order, queries="whole" if whole_q else "cut", results=results)
    said = _choice.judge(op, attend._sizes(attend._problem(attend._bind((), own), "even", attend.ranks)), scheme)
    with Counted() as forward:
        made = attend(**own, lengths="even")
    mean = lambda sent: summed(torch.tensor(sent)).item() / me()[1]
    assert mean(forward.sent) == said.sent > 0, (name, scheme, dtype, forward.sent, said)
    if not whole_q:
        made = made if isinstance(made, tuple) else (made,)
        with Counted() as backward:
            sum(t.square().sum() for t in made).backward()
        assert mean(backward.sent) == said.sent_back > 0, (name, scheme, dtype, backward.sent, said)


def wholly_masked():
    """Keys of one rank that nobody sees, and queries that see nothing."""
    rank, _ = me()
    torch.manual_seed(1)
    q, k, v = (torch.randn(1, 2, 8, 16, dtype=real(), requires_grad=True) for _ in range(3))
    document = torch.tensor([[0] * 4 + [1] * 4], dtype=torch.int32)
    text = ("return attention { inputs = { doc = tensor('i32', 'b', 'kv') }, mask_mod = function(at, x) "
            "return eq(x.doc(at.b, at.kv), 0) & eq(x.doc(at.b, at.q), 0) end }")  # fmt: skip
    op = lathe.compile(text)
    wanted = lathe.torch.wrap(op)(q, k, v, doc=document)
    gradients = torch.autograd.grad(wanted.square().sum(), (q, k, v))
    for scheme in ("heads", "gather", "ring"):
        own = [piece(x, 2, (4, 4)).detach().requires_grad_() for x in (q, k, v)]
        made = ld.wrap(op, scheme=scheme)(*own, doc=document)
        close(made.detach(), piece(wanted.detach(), 2, (4, 4)), scheme)
        made.square().sum().backward()
        for x, gradient in zip(own, gradients):
            close(x.grad, piece(gradient, 2, (4, 4)), scheme)
    assert rank == 0 or not made.any()
    k, v = (piece(x.detach(), 2, (4, 4)) for x in (k, v))
    close(ld.wrap(op, queries="whole")(q.detach(), k, v, doc=document), wanted.detach(), "keys")


def one_fails():
    """The other gets an error of the engine, and does not hang."""
    if me()[0]:
        raise ValueError("a fault of its own")
    q = torch.randn(1, 2, 4, 16)
    ld.wrap("causal")(q, q, q)


def layouts_and_lengths():
    torch.manual_seed(1)
    q, k, v = (torch.randn(1, 8, 2, 16, dtype=real()) for _ in range(3))
    own = [piece(x, 1, (5, 3)) for x in (q, k, v)]
    wanted = piece(lathe.torch.wrap("causal", layout="bshd")(q, k, v), 1, (5, 3))
    for scheme in ("heads", "gather", "ring"):
        attend = ld.wrap("causal", layout="bshd", scheme=scheme)
        close(attend(*own, lengths=(5, 3)), wanted, scheme)
    own = [piece(x, 1, (4, 4)) for x in (q, k, v)]
    made = ld.wrap("causal", layout="bshd")(*own, lengths="even")
    close(made, piece(lathe.torch.wrap("causal", layout="bshd")(q, k, v), 1, (4, 4)), "even")
    cu = torch.tensor([0, 3, 8], dtype=torch.int32)
    turned = [x.transpose(1, 2) for x in (q, k, v)]
    made = ld.wrap("causal")(*(piece(x, 2, (5, 3)) for x in turned), cu_q=cu)
    close(made, piece(lathe.torch.wrap("causal")(*turned, cu_q=cu), 2, (5, 3)), "packed")


def keys_of_8_bits():
    torch.manual_seed(1)
    q, k, v = (torch.randn(1, 2, 8, 16) for _ in range(3))
    k, v = ((4 * x).to(torch.int8) for x in (k, v))
    wanted = lathe.torch.wrap("causal")(q, k, v)
    own = [ld.shard(x, 2) for x in (q, k, v)]
    for scheme in ("heads", "gather", "ring"):
        close(ld.wrap("causal", scheme=scheme)(*own), ld.shard(wanted, 2), scheme, 1e-6)
        learned = own[1].to(torch.float8_e4m3fn).requires_grad_()
        tensors = (own[0], learned, learned.detach())
        refused_alike(lathe.ArgumentError, "torch would round it", "causal", tensors, {"scheme": scheme})
    close(ld.wrap("causal", queries="whole")(q, *own[1:]), wanted, "keys", 1e-6)


def flexed():
    """flex_attention over ranks beside the same call that has all tokens; and what is refused."""
    from torch.nn.attention.flex_attention import create_block_mask

    torch.manual_seed(1)
    n = 256
    q, k, v = (torch.randn(1, h, n, 16, dtype=real(), requires_grad=True) for h in (4, 2, 2))
    slopes = torch.rand(4, dtype=real(), requires_grad=True)
    document = torch.arange(n) // 100

    def alibi(score, b, h, q_idx, kv_idx):
        return score - slopes[h] * (q_idx - kv_idx)

    def same(b, h, q_idx, kv_idx):
        return (document[q_idx] == document[kv_idx]) & (q_idx >= kv_idx)

    block = create_block_mask(same, None, None, n, n, device=q.device.type)
    flex = lambda q, k, v, **more: lathe.torch.flex_attention(q, k, v, alibi, block, enable_gqa=True, **more)
    wanted, lse = flex(q, k, v, return_lse=True)
    gradients = torch.autograd.grad(wanted.square().sum(), (q, k, v, slopes))
    cases = [("auto", "contiguous", None), ("gather", "zigzag", "even"), ("ring", "zigzag", None)]
    for scheme, order, lengths in (*cases, ("heads", "contiguous", (100, 156))):
        cut = lambda x: piece(x, 2, lengths if isinstance(lengths, tuple) else (n // 2,) * 2, order)
        own = [cut(x).detach().requires_grad_() for x in (q, k, v)]
        slopes.grad = None
        made, its_lse = flex(*own, return_lse=True, group=dist.group.WORLD, scheme=scheme, order=order, lengths=lengths)
        close(made.detach(), cut(wanted.detach()), scheme)
        close(its_lse.detach(), cut(lse.detach()), scheme)
        made.square().sum().backward()
        for x, gradient in zip(own, gradients):
            close(x.grad, cut(gradient), scheme)
        close(summed(slopes.grad), gradients[-1], scheme)
    own = [cut(x).detach() for x in (q, k, v)]
    try:
        flex(*(x[:, :, 1:] for x in own), group=dist.group.WORLD)
    except lathe.ArgumentError as error:
        assert "made for 256 queries and 256 keys, given 254 and 254" in str(error), error
    else:
        raise AssertionError("it was taken")


def gathered_inputs():
    """Gates that are made from own tokens, and gathered: their gradients come back to the ranks."""
    torch.manual_seed(1)
    q, k, v = (torch.randn(1, 2, 8, 16, dtype=real()) for _ in range(3))
    gates = torch.randn(1, 2, 8, dtype=real(), requires_grad=True)
    wanted = lathe.torch.wrap("forgetting")(q, k, v, gates=gates)
    (gradient,) = torch.autograd.grad(wanted.square().sum(), gates)
    mine = ld.shard(gates.detach(), 2).requires_grad_()
    made = ld.wrap("forgetting", scheme="gather")(*(ld.shard(x, 2) for x in (q, k, v)), gates=ld.gather(mine, 2))
    made.square().sum().backward()
    close(mine.grad, ld.shard(gradient, 2), "gates")


def by_offset():
    op = lathe.load("flao_lrpe")
    _linear(op, (7, 5), False, theta=torch.rand(H_KV, D // 2, dtype=real()), offset=3)
    q = torch.randn(1, 2, 4, 16)
    counts = "it counts tokens, by at.pos, at.t or at.len_t (line 4 of the spec)"
    refused_alike(lathe.UnsupportedError, counts, "flao_lrpe", (q, q, q, q), {})


def linear_is_whole(names, lengths, texts=(), with_state=True):
    op_of = lambda name: lathe.compile(name) if " " in name else lathe.load(name)
    each([*names, *texts], lambda name: _linear(op_of(name), lengths, with_state))


def _linear(op, lengths, with_state, **more):
    tokens = sum(lengths)
    operands = operands_of(op, tokens, tokens)
    inputs = drawn(op, operands) | more
    has_norm = "norm" in op.forward.by_name
    if with_state:
        inputs["state"] = torch.rand(B, H, D, D, dtype=real())
        inputs |= {"norm": torch.rand(B, H, D, dtype=real()) + 1} if has_norm else {}
    results = ("o", "state_out", "norm_out") if has_norm else ("o", "state_out")
    results = results if with_state else ()
    wanted, seeds, gradients = whole_call(op, operands, inputs, results)
    dim_of = lambda n: next((i for i, d in enumerate(op.forward.by_name[n].dims) if d.name == "t"), None)
    cut = lambda n, x: piece(x, dim_of(n), lengths) if isinstance(x, torch.Tensor) and dim_of(n) is not None else x
    own = with_gradients(op, {n: cut(n, x) for n, x in {**operands, **inputs}.items()})
    made = ld.wrap(op, results=results, offset="offset" if "offset" in more else "")(**own)
    made = list(made) if isinstance(made, tuple) else [made]
    close(made[0].detach(), piece(wanted[0], 2, lengths), op.name)
    for given, whole in zip(made[1:], wanted[1:]):
        close(given.detach(), whole, f"{op.name}: a state")
    rank, count = me()
    share = [piece(seeds[0], 2, lengths)] + [s * (1 + rank) / (count * (count + 1) / 2) for s in seeds[1:]]
    torch.autograd.backward(made, share)
    for n, gradient in gradients.items():
        given = own[n].grad
        given = given if dim_of(n) is not None else summed(torch.zeros_like(own[n]) if given is None else given)
        close(given, cut(n, gradient), f"{op.name}: d{n}", 1e-8)


def gates_are_whole(names, lengths):
    """Gates that forget everything, nothing, and either by turns."""

    def check(name):
        op = lathe.load(name)
        gate = next(n for n in ("g", "w") if n in op.forward.by_name)
        like = drawn(op, operands_of(op, sum(lengths), sum(lengths)))[gate]
        turns = -40.0 * (torch.arange(like.numel()).view(like.shape) // 3 % 3).to(like)
        for value in (torch.full_like(like, -40.0), torch.zeros_like(like), turns):
            _linear(op, lengths, True, **{gate: value})

    each(names, check)


def long_states(names, lengths):
    """In bf16, of so many tokens that kernels take them in chunks and pieces; gradients of q, k, v and gates."""

    def check(name):
        op = lathe.load(name)
        tokens = sum(lengths)
        given = operands_of(op, tokens, tokens)
        given |= drawn(op, given)
        given = {n: x.bfloat16() if n in ("q", "k", "v") else x.float() for n, x in given.items()}
        cuts = {n: next((i for i, d in enumerate(op.forward.by_name[n].dims) if d.name == "t"), None) for n in given}
        cut = lambda n, x: x if cuts[n] is None else piece(x, cuts[n], lengths)
        torch.manual_seed(7)
        seed = torch.randn(given["v"].shape).to(given["v"])
        made = {}
        for way, attend, part in (("one", lathe.torch.wrap(op), lambda n, x: x), ("all", ld.wrap(op), cut)):
            own = with_gradients(op, {n: part(n, x).clone() for n, x in given.items()})
            o = attend(**own)
            assert o.isfinite().all(), f"{name}: o is not finite"
            o.backward(part("v", seed))
            shares = {n: x.grad for n, x in own.items() if x.requires_grad}
            if way == "all":
                shares = {n: summed(x) if cuts[n] is None else x for n, x in shares.items()}
            made[way] = {"v": o.detach()} | {f"d{n}": x for n, x in shares.items()}
        for n, x in made["all"].items():
            y = cut(n.removeprefix("d"), made["one"][n]).double()
            error = float((x.double() - y).norm() / y.norm())
            assert error < (2e-2 if on_gpus() else 1e-2), f"{name}: {'o' if n == 'v' else n} is off by {error}"

    each(names, check)


def states_under_autocast(lengths):
    """Operands are cast as one rank casts them, and states go from rank to rank in f32 as without it."""
    for name in ("kda", "gla"):
        op = lathe.load(name)
        tokens = sum(lengths)
        given = operands_of(op, tokens, tokens)
        given |= drawn(op, given)
        dim_of = lambda n: next(i for i, d in enumerate(op.forward.by_name[n].dims) if d.name == "t")
        own = {n: piece(x, dim_of(n), lengths).float() for n, x in given.items()}
        short = {n: x.bfloat16() if n in ("q", "k", "v") else x for n, x in own.items()}
        attend = ld.wrap(op, results=("o", "state_out"))
        wanted = gradients_of(attend, short)
        with torch.autocast(given["q"].device.type, torch.bfloat16):
            for operands in (short, own):
                for x, y in zip(gradients_of(attend, operands), wanted):
                    close(x, y.to(x.dtype), name, 0.0)  # bit for bit on the host device


def gradients_of(attend, given):
    """Results, and gradients of q, k and v."""
    given = {n: x.detach().requires_grad_(n in ("q", "k", "v")) for n, x in given.items()}
    o, state = attend(**given)
    torch.autograd.backward([o, state], [torch.ones_like(o), torch.ones_like(state)])
    return o, state, *(given[n].grad for n in ("q", "k", "v"))


def placed():
    """DTensors on meshes of one and two dims, beside one rank; results and gradients lie as q does."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

    _, count = me()
    torch.manual_seed(1)
    q, k, v = (torch.randn(2, h, 9, 16, dtype=real(), requires_grad=True) for h in (4, 2, 2))
    sink = torch.randn(4, dtype=real(), requires_grad=True)
    wanted, lse = lathe.torch.wrap("sinks", results=("o", "lse"))(q, k, v, sink=sink)
    gradients = torch.autograd.grad(wanted.square().sum(), (q, k, v, sink))
    line = init_device_mesh("cuda" if on_gpus() else "cpu", (count,), mesh_dim_names=("cp",))
    cases = [(line, [p]) for p in (Shard(2), Shard(1), Shard(0), Replicate())]
    if count == 4:
        square = init_device_mesh("cuda" if on_gpus() else "cpu", (2, 2), mesh_dim_names=("tp", "cp"))
        cases = [(square, p) for p in ([Shard(1), Shard(2)], [Shard(0), Shard(2)], [Shard(1), Replicate()])]
    for mesh, placements in cases:
        own = [distribute_tensor(x.detach(), mesh, placements).requires_grad_() for x in (q, k, v)]
        whole = distribute_tensor(sink.detach(), mesh, [Replicate()] * mesh.ndim).requires_grad_()
        made, its_lse = ld.wrap("sinks", results=("o", "lse"))(*own, sink=whole)
        assert isinstance(made, DTensor) and list(made.placements) == placements
        close(made.full_tensor().detach(), wanted.detach(), str(placements))
        close(its_lse.full_tensor().detach(), lse.detach(), str(placements))
        made.to_local().square().sum().backward()
        for x, gradient in zip(own, gradients):
            close(x.grad.full_tensor(), gradient, str(placements))
    if count == 2:
        _placed_otherwise(line, q, k, v, sink, wanted)


def _placed_otherwise(line, q, k, v, sink, wanted):
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    q, k, v, sink = (x.detach() for x in (q, k, v, sink))
    put = lambda x, p: distribute_tensor(x, line, [p])
    made = ld.wrap("sinks")(put(q, Replicate()), put(k, Shard(2)), put(v, Shard(2)), sink=put(sink, Replicate()))
    close(made.full_tensor(), wanted.detach(), "keys")
    turned = [put(x.transpose(1, 2).contiguous(), Shard(1)) for x in (q, k, v)]
    made = ld.wrap("sinks", layout="bshd")(*turned, sink=put(sink, Replicate()))
    close(made.full_tensor().transpose(1, 2), wanted.detach(), "bshd")
    attend = ld.wrap("sinks", layout="bshd")
    assert attend.explain(*turned, sink=put(sink, Replicate())).startswith("sinks: scheme gather over 2 ranks")
    wrong = lathe.ArgumentError
    heads = [put(x, Shard(1)) for x in (q, k, v)]
    assert "nothing is sent" in ld.wrap("sinks").explain(*heads, sink=put(sink, Replicate()))
    refused_alike(wrong, "placed differently", "sinks", (put(q, Shard(1)), *(put(x, Shard(2)) for x in (k, v))), {},
                  sink=sink)  # fmt: skip
    refused_alike(wrong, "belong together", "sinks", [put(x, Shard(3)) for x in (q, k, v)], {}, sink=sink)
    refused_alike(wrong, "'sink': expected all of it along dim h", "sinks", heads, {}, sink=put(sink, Shard(0)))
    refused_alike(wrong, "'k': expected a DTensor, as other", "sinks", (heads[0], k, v), {}, sink=sink)


def compiled():
    """torch.compile breaks its graph at a call, and goes on behind it."""
    torch.manual_seed(1)
    attend = ld.wrap("causal", scheme="gather")
    run = torch.compile(lambda q: attend(q * 2, q, q, lengths="even") + 1, backend="aot_eager")
    q = torch.randn(1, 2, 4, 16, dtype=real(), requires_grad=True)
    made = run(q)
    (gradient,) = torch.autograd.grad(made.square().sum(), q)
    again = attend(q * 2, q, q, lengths="even") + 1
    close(made, again, "compiled")
    close(gradient, torch.autograd.grad(again.square().sum(), q)[0], "its gradient")
