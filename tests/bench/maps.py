"""maps.py: rows of the element-wise operators and of the optimizers: formulas in torch, written apart from the specs; run in float64 on parts
of the tensors they check, compiled by torch they are a peer.

Rates count the fewest bytes: everything that is needed read once, every result written once.
"""

import math
import os
import time

import torch
import torch.nn.functional as F

from errors import relative

ERROR_BOUND = 1e-2       # bf16, relative L2 of each output
GRAD_ERROR_BOUND = 2e-2
FORWARD, BACKWARD = {"copy": 0.92, "compile": 1.0}, {"copy": 0.88, "compile": 1.0}
OPTIMIZER = {"copy": 0.90, "compile": 1.0}
HERE = os.path.dirname(os.path.abspath(__file__))


# ---- formulas: of dicts of tensors, in the precision of what they are given, at least f32 -----------------------

def wide(x):
    return x if x.dtype == torch.float64 else x.float()


def silu(x):
    return x * torch.sigmoid(x)


def gelu(x):
    return F.gelu(x)


def identity(x):
    return x


def activation(f):
    return lambda t: {"y": f(wide(t["x"]))}


def gated(f):
    return lambda t: {"y": f(wide(t["gate"])) * wide(t["up"])}


def rope_angles(x, pairs, base=10000.0):
    exact = torch.float64 if x.dtype == torch.float64 else torch.float32
    at = torch.arange(x.shape[1], device=x.device, dtype=exact)
    return at[:, None] * base ** (-torch.arange(pairs, device=x.device, dtype=exact) / pairs)


def rope_half(t):
    out = {}
    for name in ("q", "k"):
        x = wide(t[name])
        angle = rope_angles(x, x.shape[-1] // 2)[None, :, None]
        lo, hi = x.chunk(2, -1)
        c, s = torch.cos(angle), torch.sin(angle)
        out[name + "_out"] = torch.cat([lo * c - hi * s, hi * c + lo * s], -1)
    return out


def rope_interleaved(t):
    out = {}
    for name in ("q", "k"):
        x = wide(t[name])
        angle = rope_angles(x, x.shape[-1] // 2)[None, :, None]
        lo, hi = x[..., 0::2], x[..., 1::2]
        c, s = torch.cos(angle), torch.sin(angle)
        out[name + "_out"] = torch.stack([lo * c - hi * s, hi * c + lo * s], -1).flatten(-2)
    return out


def lrpe(act):
    def formula(t):
        x, theta = wide(t["x"]), wide(t["theta"])
        angle = torch.arange(x.shape[2], device=x.device, dtype=x.dtype)[:, None] * theta[:, None]
        return {"y": torch.cat([act(x) * torch.cos(angle), act(x) * torch.sin(angle)], -1)}
    return formula


def lrpe_softmax_d(t):
    x, theta, lse = wide(t["x"]), wide(t["theta"]), t["lse"].to(wide(t["x"]).dtype)
    angle = torch.arange(x.shape[2], device=x.device, dtype=x.dtype)[:, None] * theta[:, None]
    a = torch.exp(x - lse[..., None])
    return {"y": torch.cat([a * torch.cos(angle), a * torch.sin(angle)], -1)}


def md_lrpe(grid, act):
    """grid: points along each axis but the first, the last fastest."""
    def formula(t):
        x, theta = wide(t["x"]), wide(t["theta"])
        n, d = x.shape[2:]
        axes = len(grid) + 1
        e = -(-d // axes)
        rest, places = torch.arange(n, device=x.device), []
        for size in reversed(grid):
            places.insert(0, rest % size)
            rest = rest // size
        places.insert(0, rest)
        feature = torch.arange(d, device=x.device)
        index = torch.stack(places)[feature // e].T  # [n, d]
        angle = index.to(x.dtype) * theta[:, None, feature % e]
        return {"y": torch.cat([act(x) * torch.cos(angle), act(x) * torch.sin(angle)], -1)}
    return formula


def embedding(t):
    return {"y": wide(F.embedding(t["id"].long(), t["table"]))}


def mean_pool_packed(t):
    length, step = t["length"].long()[:, None], t["place"].long()
    token = t["first"].long()[:, None] + torch.minimum(step, (length - 1).clamp(min=0))
    inside = (step < length)[..., None]
    return {"mean": torch.where(inside, wide(t["values"])[token], 0.0).sum(1) / length.clamp(min=1)}


# ---- one operator ----------------------------------------------------------------------------------------------

class Map:
    """part: tensors whose dim 0 the points are independent along, `step` of them checked at a time; shared: read by all of them.
    needed: what its backward pass is given; sums: gradients of shared inputs; unread: given but not read."""

    def __init__(self, title, spec, formula, part, results, shared=None, scalars=None, needed=(), sums=(), step=1, unread=()):
        self.title, self.spec, self.formula, self.step = title, spec, formula, step
        self.make_part, self.make_shared, self.make_results = part, shared or dict, results
        self.scalars, self.needed, self.sums, self.unread = scalars or {}, needed, sums, unread

    def allocate(self, seed):
        torch.manual_seed(seed)
        self.part, self.shared = self.make_part(), self.make_shared()
        self.results = {name: torch.empty(shape, dtype=torch.bfloat16, device="cuda") for name, shape in self.make_results.items()}

    def parts(self, all_of_them):
        n = next(iter(self.part.values())).shape[0]
        starts = list(range(0, n, self.step))
        return [slice(i, min(i + self.step, n)) for i in (starts if all_of_them else sorted({starts[0], starts[len(starts) // 2], starts[-1]}))]

    def exact(self, where):
        """The inputs of one part in float64."""
        def up(x):
            return x.double() if x.is_floating_point() else x
        return {**{k: up(v[where]) for k, v in self.part.items()}, **{k: up(v) for k, v in self.shared.items()}}

    def shared_bytes(self):
        return sum(v.nbytes for v in self.shared.values())

    def errors(self):
        worst = {}
        for where in self.parts(False):
            for name, want in self.formula(self.exact(where)).items():
                worst[name] = max(worst.get(name, 0.0), relative(self.results[name][where], want))
        return worst

    def gradient_errors(self, upstream, grads):
        worst, sums = {}, {}
        for where in self.parts(bool(self.sums)):
            with torch.enable_grad():
                given = self.exact(where)
                leaves = {k: given[k].requires_grad_(True) for k in given if "d" + k in grads}
                out = self.formula(given)
                found = torch.autograd.grad([out[k] for k in out], list(leaves.values()), [upstream["d" + k][where].double() for k in out])
            for (name, _), want in zip(leaves.items(), found):
                if name in self.sums:
                    sums[name] = want + sums.get(name, 0.0)
                else:
                    worst["d" + name] = max(worst.get("d" + name, 0.0), relative(grads["d" + name][where], want))
        return {**worst, **{"d" + name: relative(grads["d" + name], want) for name, want in sums.items()}}


def as_results(formula):
    """What a user compiles: results in bf16."""
    return lambda t: {name: y.to(torch.bfloat16) for name, y in formula(t).items()}


def copy_of(nbytes):
    """A device-to-device copy that moves at least 1 GiB, and the bytes that it moves."""
    n = max(min(nbytes // 2, 1 << 30), 1 << 29)
    source, target = (torch.empty(n // 2, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    source.normal_()
    return (lambda: target.copy_(source)), 2 * source.nbytes


def timed(make):
    torch.cuda.synchronize()
    start = time.perf_counter()
    made = make()
    return made, time.perf_counter() - start


def spec_of(name):
    return os.path.join(HERE, name) if name.endswith(".lua") else name


def measure(bench, row, ours, nbytes, others):
    calls = {"ours": ours}
    work = {"ours": nbytes / 1e9}
    calls["copy"], copied = copy_of(nbytes)
    work["copy"] = copied / 1e9
    bench.add_candidates(row, calls, others)
    bench.measure(row, calls, dict.fromkeys(calls, work["ours"]) | work)


def forward_call(ctx, m):
    return ctx.call(spec_of(m.spec), **m.part, **m.shared, **m.scalars, **m.results)


def backward_call(ctx, m):
    """And what is read by points, the upstream gradients, the gradients."""
    upstream = {"d" + name: torch.randn_like(y) for name, y in m.results.items()}
    of = {**m.part, **{name: m.shared[name] for name in m.sums}}
    grads = {"d" + name: torch.empty_like(t, dtype=torch.float32 if name in m.sums else t.dtype) for name, t in of.items()
             if t.is_floating_point()}
    given = {k: v for k, v in {**m.part, **m.shared}.items() if k in m.needed}
    return ctx.call(spec_of(m.spec), backward=True, **given, **m.scalars, **upstream, **grads), given, upstream, grads


def forward(bench, m, bars):
    m.allocate(len(bench.rows))
    row = {"name": m.title, "group": "elementwise", "unit": "TB/s", "notes": {}}
    call, row["compile_s"] = timed(lambda: forward_call(bench.ctx, m))
    bench.infos.setdefault(m.title, call.info)
    given = {**m.part, **m.shared}
    nbytes = sum(t.nbytes for t in (*m.part.values(), *m.results.values())) + m.shared_bytes()
    others = {}
    if not bench.options.no_compile:
        torch._dynamo.reset()
        compiled = torch.compile(as_results(m.formula), dynamic=False)
        others["compile"] = lambda: lambda: compiled(given)
    measure(bench, row, call, nbytes, others)
    for y in m.results.values():
        y.fill_(math.nan)
    call()
    torch.cuda.synchronize()
    row["errors"] = m.errors()
    row["error"] = max(row["errors"].values())
    bench.finish(row, bars, row["error"] <= ERROR_BOUND)
    print(f"  compiled in {row['compile_s']:.2f} s", flush=True)
    call.close()


def backward(bench, m, bars):
    m.allocate(len(bench.rows))
    row = {"name": f"{m.title} backward", "group": "grad_elementwise", "unit": "TB/s", "notes": {}}
    (call, given, upstream, grads), row["compile_s"] = timed(lambda: backward_call(bench.ctx, m))
    bench.infos.setdefault(row["name"], call.info)
    nbytes = sum(t.nbytes for t in (*upstream.values(), *grads.values())) + sum(v.nbytes for k, v in given.items() if k in m.part)
    nbytes += sum(v.nbytes for k, v in given.items() if k in m.shared and k not in m.unread)
    others = {}
    if not bench.options.no_compile:
        others["compile"] = lambda: compiled_gradient(m, upstream, grads)
    measure(bench, row, call, nbytes, others)
    for g in grads.values():
        g.fill_(math.nan)
    call()
    torch.cuda.synchronize()
    row["errors"] = m.gradient_errors(upstream, grads)
    row["error"] = max(row["errors"].values())
    bench.finish(row, bars, row["error"] <= GRAD_ERROR_BOUND)
    print(f"  compiled in {row['compile_s']:.2f} s", flush=True)
    call.close()


def compiled_gradient(m, upstream, grads):
    """The same function: of the tensors that our pass is given. Through autograd the forward pass saves what suits torch (relu: a mask of
    bytes in place of x), written at another time and not counted here."""
    torch._dynamo.reset()
    given = {**m.part, **m.shared}
    leaves = [k for k in given if "d" + k in grads]

    def gradients(given, upstream):
        def of_leaves(*values):
            return as_results(m.formula)({**given, **dict(zip(leaves, values))})
        pull = torch.func.vjp(of_leaves, *[given[k] for k in leaves])[1]
        return pull({k[1:]: v for k, v in upstream.items()})
    compiled = torch.compile(gradients, dynamic=False)

    def call():
        with torch.enable_grad():
            return compiled(given, upstream)
    return call


# ---- which operators --------------------------------------------------------------------------------------------

def normal(*shape, dtype=torch.bfloat16):
    return lambda: torch.randn(*shape, dtype=dtype, device="cuda")


def drawn(**makers):
    return lambda: {name: make() for name, make in makers.items()}


def activations(rows, n):
    for name, f in (("none", identity), ("relu", torch.relu), ("sigmoid", torch.sigmoid), ("silu", silu), ("gelu", gelu)):
        yield Map(f"act_{name} {rows}x{n}", f"act_{name}", activation(f), drawn(x=normal(rows, n)), {"y": (rows, n)},
                  needed=() if name == "none" else ("x",), step=64)
    for name, f in (("glu", torch.sigmoid), ("reglu", torch.relu), ("geglu", gelu), ("swiglu", silu)):
        yield Map(f"{name} {rows}x{n}", name, gated(f), drawn(gate=normal(rows, n), up=normal(rows, n)), {"y": (rows, n)},
                  needed=("gate", "up"), step=64)


def ropes(b, t, h, h_kv, d):
    for spec, formula in (("rope_half", rope_half), ("rope_interleaved", rope_interleaved)):
        yield Map(f"{spec} B{b} S{t} H{h}/{h_kv} D{d}", spec, formula, drawn(q=normal(b, t, h, d), k=normal(b, t, h_kv, d)),
                  {"q_out": (b, t, h, d), "k_out": (b, t, h_kv, d)})


def lrpes(b, h, n, d, grid):
    one, two = grid[-1], grid[-1] * grid[-2]
    e = {1: d, 2: -(-d // 2), 3: -(-d // 3)}
    shape, y = (b, h, n, d), {"y": (b, h, n, 2 * d)}
    size = f"B{b} H{h} S{n} D{d}"

    def theta(width):
        return drawn(theta=lambda: 0.05 * torch.randn(h, width, device="cuda"))

    def with_lse():
        x = normal(*shape)()
        return {"x": x, "lse": torch.cat([torch.logsumexp(part.float(), -1) for part in x.split(1)])}
    yield Map(f"lrpe {size}", "lrpe", lrpe(identity), drawn(x=normal(*shape)), y, theta(d), needed=("x", "theta"), sums=("theta",))
    yield Map(f"lrpe_silu {size}", "lrpe_silu", lrpe(silu), drawn(x=normal(*shape)), y, theta(d), needed=("x", "theta"), sums=("theta",))
    yield Map(f"lrpe_softmax_d {size}", "lrpe_softmax_d", lrpe_softmax_d, with_lse, y, theta(d), needed=("x", "theta", "lse"), sums=("theta",))
    yield Map(f"md_lrpe_1d {size}", "md_lrpe_1d", md_lrpe((), identity), drawn(x=normal(*shape)), y, theta(e[1]), needed=("x", "theta"),
              sums=("theta",))
    yield Map(f"md_lrpe_2d {size}", "md_lrpe_2d", md_lrpe((two,), identity), drawn(x=normal(*shape)), y, theta(e[2]), {"n_2": two},
              needed=("x", "theta"), sums=("theta",))
    yield Map(f"md_lrpe_3d {size}", "md_lrpe_3d", md_lrpe((grid[-2], one), identity), drawn(x=normal(*shape)), y, theta(e[3]),
              {"n_2": grid[-2], "n_3": one}, needed=("x", "theta"), sums=("theta",))
    yield Map(f"md_lrpe_silu_2d {size}", "md_lrpe_silu.lua", md_lrpe((two,), silu), drawn(x=normal(*shape)), y, theta(e[2]), {"n_2": two},
              needed=("x", "theta"), sums=("theta",))


def embeddings(b, t, d):
    """Every word once, in random order: what is fewest to read does not depend on caches."""
    words = b * t
    yield Map(f"embedding {words}x{d} B{b} S{t}", "embedding", embedding,
              drawn(id=lambda: torch.randperm(words, dtype=torch.int32, device="cuda").view(b, t)), {"y": (b, t, d)},
              drawn(table=normal(words, d)), needed=("id", "table"), sums=("table",), unread=("table",))


def packed_pools(sequences, length, d, chunk=64):
    """Chunks of packed sequences of one length, which it need not divide."""
    tokens, first = sequences * length, []
    for start in range(0, tokens, length):
        first += range(start, start + length, chunk)

    def chunks():
        begin = torch.tensor(first, dtype=torch.int32, device="cuda")
        return {"first": begin, "length": torch.clamp(length - begin % length, max=chunk).to(torch.int32)}
    yield Map(f"mean_pool_packed {sequences}x{length}x{d}", "mean_pool_packed", mean_pool_packed, chunks, {"mean": (len(first), d)},
              drawn(values=normal(tokens, d), place=lambda: torch.arange(chunk, dtype=torch.int32, device="cuda")),
              needed=("first", "length", "place", "values"), sums=("values",), step=1024, unread=("values",))


# ---- optimizers -------------------------------------------------------------------------------------------------

class Pointers:
    """A list of tensors as an argument: their addresses, in device memory."""

    def __init__(self, tensors):
        self.tensors, self.dtype, self.device = tensors, tensors[0].dtype, tensors[0].device
        self.shape = (len(tensors),)
        self.addresses = torch.tensor([t.data_ptr() for t in tensors], dtype=torch.int64, device=self.device)

    def stride(self):
        return (1,)

    def data_ptr(self):
        return self.addresses.data_ptr()


def mixed_lengths(count, total):
    """As of a model: vectors of some thousand elements between matrices; all of them `total`."""
    generator = torch.Generator().manual_seed(11)
    lengths = [int(2 ** (8 + 6 * float(torch.rand(1, generator=generator)))) if i % 3 else 0 for i in range(count)]
    weights = torch.rand(count, generator=generator) + 0.2
    large = [i for i in range(count) if i % 3 == 0]
    left = total - sum(lengths)
    for i in large:
        lengths[i] = int(left * float(weights[i]) / float(weights[large].sum()))
    lengths[0] += total - sum(lengths)  # a round number of elements: the peers' one long tensor has whole vectors
    return lengths


LION = {"lr": 1e-2, "beta1": 0.9, "beta2": 0.99, "decay": 0.1}
ADAMW = {"lr": 1e-2, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "decay": 0.1, "bias1": 0.1, "bias2": 0.001}


def lion_step(p, g, m):
    p, g, m = wide(p), wide(g), wide(m)
    update = torch.sign(LION["beta1"] * m + (1.0 - LION["beta1"]) * g)
    return {"p": p * (1.0 - LION["lr"] * LION["decay"]) - LION["lr"] * update, "m": LION["beta2"] * m + (1.0 - LION["beta2"]) * g}


def adamw_step(p, g, m, s):
    p, g, m, s = wide(p), wide(g), wide(m), wide(s)
    m = ADAMW["beta1"] * m + (1.0 - ADAMW["beta1"]) * g
    s = ADAMW["beta2"] * s + (1.0 - ADAMW["beta2"]) * g * g
    step = (m / ADAMW["bias1"]) / (torch.sqrt(s / ADAMW["bias2"]) + ADAMW["eps"])
    return {"p": p * (1.0 - ADAMW["lr"] * ADAMW["decay"]) - ADAMW["lr"] * step, "m": m, "s": s}


def optimizer(bench, title, spec, step, scalars, lengths, dtypes, peers):
    """dtypes: of p, g, m and so on; in place. The peer writes over tensors of its own."""
    torch.manual_seed(len(bench.rows))
    row = {"name": title, "group": "optimizers", "unit": "TB/s", "notes": {}}
    total = sum(lengths)
    lists = {}
    for name, dtype in dtypes.items():
        flat = torch.randn(total, dtype=dtype, device="cuda") * (1.0 if name == "p" else 0.1)
        lists[name] = [t.clone() for t in (flat.square() if name == "s" else flat).split(lengths)]  # each allocated by itself
    extra = {"w": [torch.empty_like(t, dtype=torch.bfloat16) for t in lists["p"]]} if spec == "adamw_master" else {}
    table = {name: Pointers(ts) for name, ts in {**lists, **extra}.items()}
    counts = torch.tensor(lengths, dtype=torch.int32, device="cuda")
    call, row["compile_s"] = timed(lambda: bench.ctx.call(spec, lengths=counts, **table, **scalars))
    bench.infos.setdefault(title, call.info)
    picked = sorted({0, min(1, len(lengths) - 1), len(lengths) // 2, len(lengths) - 1})
    before = [{name: ts[i].clone() for name, ts in lists.items()} for i in picked]
    call()
    torch.cuda.synchronize()
    row["errors"] = {}
    for old, i in zip(before, picked):
        for name, want in step(**{k: v.double() for k, v in old.items()}).items():
            row["errors"][name] = max(row["errors"].get(name, 0.0), relative(lists[name][i], want))
            if name == "p" and extra:
                row["errors"]["w"] = max(row["errors"].get("w", 0.0), relative(extra["w"][i], want))
    row["error"] = max(row["errors"].values())
    nbytes = sum((1 if name == "g" else 2) * sum(t.nbytes for t in ts) for name, ts in lists.items())
    nbytes += sum(t.nbytes for ts in extra.values() for t in ts)
    del before
    measure(bench, row, call, nbytes, {name: (lambda f=f: f(dtypes, lengths, step)) for name, f in peers.items()})
    bench.finish(row, OPTIMIZER, row["error"] <= ERROR_BOUND)
    print(f"  compiled in {row['compile_s']:.2f} s", flush=True)
    call.close()


def compiled_step(dtypes, lengths, step):
    """Of one long tensor: a list of hundreds takes torch.compile minutes."""
    tensors = {name: torch.rand(sum(lengths), device="cuda").to(dtype) for name, dtype in dtypes.items()}
    copies = [torch.empty_like(tensors["p"], dtype=torch.bfloat16)] if dtypes["p"] == torch.float32 and dtypes["g"] != torch.float32 else []

    def run(given, copies):
        for name, new in step(**given).items():
            given[name].copy_(new)
            for w in copies if name == "p" else ():
                w.copy_(new)
    torch._dynamo.reset()
    compiled = torch.compile(run, dynamic=False)
    return lambda: compiled(tensors, copies)


def torch_adamw(**options):
    def make(dtypes, lengths, step):
        params = [torch.randn(n, device="cuda").to(dtypes["p"]).requires_grad_(True) for n in lengths]
        for p in params:
            p.grad = torch.randn_like(p)
        chosen = torch.optim.AdamW(params, lr=ADAMW["lr"], weight_decay=ADAMW["decay"], **options)
        return chosen.step
    return make


def optimizer_rows(bench, total):
    half, single = torch.bfloat16, torch.float32
    lion = {"p": half, "g": half, "m": half}
    adamw = {**lion, "s": half}
    many, one = mixed_lengths(300, total), [total]
    compiled = {} if bench.options.no_compile else {"compile": compiled_step}
    fused = {"fused": torch_adamw(fused=True), "foreach": torch_adamw(foreach=True)}
    table = (("lion 300 tensors", "lion", lion_step, LION, many, lion, compiled),
             ("lion one tensor", "lion", lion_step, LION, one, lion, compiled),
             ("lion 300 tensors, m f32", "lion", lion_step, LION, many, {**lion, "m": single}, compiled),
             ("adamw 300 tensors", "adamw", adamw_step, ADAMW, many, adamw, {**compiled, **fused}),
             ("adamw 300 tensors, f32", "adamw", adamw_step, ADAMW, many, {name: single for name in adamw}, {**compiled, **fused}),
             ("adamw_master 300 tensors", "adamw_master", adamw_step, ADAMW, many, {**adamw, "p": single, "m": single, "s": single}, compiled))
    for title, spec, step, scalars, lengths, dtypes, peers in table:
        bench.guard(title, "optimizers", lambda: optimizer(bench, title, spec, step, scalars, lengths, dtypes, peers))


# ---- all rows ----------------------------------------------------------------------------------------------------

def all_rows(bench):
    full = bench.options.shrink == 1
    made = [*activations(*((32768, 8192) if full else (70, 96)))]
    made += [*ropes(*((4, 8192, 32, 32, 128) if full else (2, 33, 2, 2, 32)))]
    made += [*ropes(*((8, 8192, 32, 8, 128) if full else (2, 33, 4, 2, 32)))]
    made += [*lrpes(*((8, 16, 16384, 128, (16, 32, 32)) if full else (2, 2, 24, 32, (2, 3, 4))))]
    made += [*embeddings(*((8, 16384, 4096) if full else (2, 33, 64)))]
    made += [*packed_pools(*((256, 1000, 2048) if full else (3, 70, 64)))]
    for m in made:
        bench.guard(m.title, "elementwise", lambda: forward(bench, m, FORWARD))
        bench.guard(f"{m.title} backward", "grad_elementwise", lambda: backward(bench, m, BACKWARD))
    optimizer_rows(bench, 2 ** 28 if full else 40000)
