"""grads.py: rows of the backward pass: ours with o and the statistics of our forward, torch's by autograd, and gradients in
float64 by closed formulas, in chunks of rows, apart from the specs.
"""

import math

import torch

import cases
import peers
from errors import relative

ERROR_BOUND = 2e-2  # bf16, relative L2 of each gradient
MEAN = 1.20         # geometric mean of the plain rows over cuDNN
CHUNK = 512         # rows of a score matrix in float64
FLEX_BARS = {"alibi_slopes": 1.5, "softcap": 2.5, "window": 1.5, "document": 1.5, "relative_bias": 1.5}


class Gradient:
    """A problem with its upstream gradient, and room for what comes out."""

    def __init__(self, problem, seed):
        self.problem = problem.allocate(seed)
        p = problem
        options = {"dtype": p.dtype, "device": "cuda"}
        self.do = torch.randn(p.b, p.h, p.q, p.d_v, **options)
        self.lse = torch.empty(p.b, p.h, p.q, dtype=torch.float32, device="cuda")
        self.grads = {"d" + name: torch.empty_like(t) for name, t in p.tensors.items()}
        self.learned = [name for name in p.inputs if name in p.variant.learned]
        self.grads.update({"d" + name: torch.empty_like(p.inputs[name]) for name in self.learned})

    def flops(self):
        """Of the whole backward pass: s again, dp, dv, dq, dk."""
        p = self.problem
        return 2.0 * p.b * p.h * p.live_pairs() * (3 * p.d + 2 * p.d_v)

    def forward(self, ctx):
        p = self.problem
        call = ctx.call(p.spec(), o=p.out, lse=self.lse, **p.tensors, **p.inputs, **p.variant.scalars)
        call()
        torch.cuda.synchronize()
        call.close()

    def call(self, ctx):
        p = self.problem
        return ctx.call(p.spec(), backward=True, o=p.out, lse=self.lse, do=self.do, **p.tensors, **p.inputs,
                        **p.variant.scalars, **self.grads)

    # ---- float64

    def chunks(self, b, h):
        """(row0, row1, weights, dL/dscore, dL/ds before the score mod) of one head."""
        p = self.problem
        k, v = (t.double() for t in p._keys(b, h))
        kv = torch.arange(p.kv, device="cuda")[None, :]
        x = {name: t.double() if t.is_floating_point() else t for name, t in p.inputs.items()}
        x["heads"], x["len_kv"] = p.h, p.kv
        head = torch.tensor(h, device="cuda")
        for row0 in range(0, p.q, CHUNK):
            row1 = min(row0 + CHUNK, p.q)
            row = torch.arange(row0, row1, device="cuda")[:, None]
            raw = (p.tensors["q"][b, h, row0:row1].double() @ k.T) / math.sqrt(p.d)
            s = p.variant.score(raw, head, row, kv, x) if p.variant.score else raw
            live = p.variant.live(torch.full_like(row, b), row, kv, x) if p.variant.live else None
            weights = p.variant.weights(s, live, x)
            dp = self.do[b, h, row0:row1].double() @ v.T
            ds = weights * (dp - (weights * dp).sum(-1, keepdim=True))
            yield row0, row1, weights, ds, ds * p.variant.slope(raw) if p.variant.slope else ds

    def tensors_of(self, b, of):
        """dq of the group's heads, dk, dv of one key head."""
        p = self.problem
        group = p.h // p.h_kv
        k = p.tensors["k"][b, of].double()
        out = {"dk": 0.0, "dv": 0.0, "dq": []}
        for h in range(of * group, (of + 1) * group):
            rows = []
            for row0, row1, weights, _, ds in self.chunks(b, h):
                rows.append((ds @ k) / math.sqrt(p.d))
                out["dk"] = (ds.T @ p.tensors["q"][b, h, row0:row1].double()) / math.sqrt(p.d) + out["dk"]
                out["dv"] = weights.T @ self.do[b, h, row0:row1].double() + out["dv"]
            out["dq"].append(torch.cat(rows))
        return out

    def errors(self, grads):
        """{name: error} of dq, dk, dv for two key heads, and of learned inputs for one head over all batches."""
        p = self.problem
        worst = {}
        group = p.h // p.h_kv
        for b, of in {(0, 0), (p.b - 1, p.h_kv - 1)}:
            expected = self.tensors_of(b, of)
            pairs = [("dk", grads["dk"][b, of], expected["dk"]), ("dv", grads["dv"][b, of], expected["dv"])]
            pairs += [("dq", grads["dq"][b, of * group + i], e) for i, e in enumerate(expected["dq"])]
            for name, got, want in pairs:
                worst[name] = max(worst.get(name, 0.0), relative(got, want))
        for name in self.learned:
            h = p.h - 1
            expected = sum(p.variant.learned[name](ds, row0, row1, p.kv) for b in range(p.b)
                           for row0, row1, _, ds, _ in self.chunks(b, h))
            worst["d" + name] = relative(grads["d" + name][h], expected)
        return worst


# ---- rows ----------------------------------------------------------------------------------------------

def attention(bench, problem, peers_of, bars, group, baseline=None):
    """peers_of: {name: gradient -> callable}. baseline: the name under which the same kernel runs that is not deterministic."""
    gradient = Gradient(problem, seed=len(bench.rows))
    gradient.forward(bench.ctx)
    peers_of = {**peers_of, **peers.further_grad([] if baseline else bench.options.peers, problem)}
    ctx = bench.deterministic() if baseline else bench.ctx
    title = f"{problem.title()} backward" + (" deterministic" if baseline else "")
    row = {"name": title, "group": group, "unit": "TFLOP/s", "notes": {}}
    opened = {"ours": gradient.call(ctx)}
    bench.infos.setdefault(title, opened["ours"].info)
    if baseline:
        opened[baseline] = gradient.call(bench.ctx)
    calls = dict(opened)
    bench.add_candidates(row, calls, {peer: lambda m=make: m(gradient) for peer, make in peers_of.items()})
    bench.measure(row, calls, {name: gradient.flops() / 1e9 for name in calls})
    for g in gradient.grads.values():
        g.fill_(math.nan)
    opened["ours"]()
    torch.cuda.synchronize()
    row["errors"] = gradient.errors(gradient.grads)
    row["error"] = max(row["errors"].values())
    row["peer_errors"] = {name: max(gradient.errors(dict(zip(("dq", "dk", "dv"), call()[:3])) |
                                                    {n: g for n, g in gradient.grads.items() if n not in ("dq", "dk", "dv")})
                                    .values()) for name, call in calls.items() if name in peers_of}
    bench.check_peers(row, problem.exact(ERROR_BOUND))
    if baseline:
        row["same_bits"] = same_bits(gradient, opened["ours"])
    if "attention_bwd_sm80" in opened["ours"].info and problem.dtype == torch.bfloat16:
        bars = {"flash": 0.90} if problem.name == "causal" and problem.d <= 128 and problem.q >= 4096 else {}
    bench.finish(row, bars, row["error"] <= problem.exact(ERROR_BOUND) and row.get("same_bits", True))
    for call in opened.values():
        call.close()


def same_bits(gradient, call):
    first = {}
    for turn in range(2):
        call()
        torch.cuda.synchronize()
        for name, g in gradient.grads.items():
            if turn == 0:
                first[name] = g.clone()
            elif not torch.equal(first[name], g):
                return False
    return True


def rowwise(bench, spec, rows, n, bar):
    torch.manual_seed(len(bench.rows))
    options = {"dtype": torch.bfloat16, "device": "cuda"}
    x, dy = torch.randn(rows, n, **options), torch.randn(rows, n, **options)
    y, dx, target = torch.empty_like(x), torch.empty_like(x), torch.empty_like(x)
    inputs = cases.rowwise_inputs(spec, n, torch.bfloat16)
    saved = {name: torch.empty(rows, dtype=torch.float32, device="cuda")
             for name in {"rms_norm": ("rstd",), "layer_norm": ("mean", "rstd")}.get(spec, ())}
    grads = {"dx": dx, **{"d" + name: torch.empty(n, dtype=torch.float32, device="cuda") for name in inputs}}
    forward = bench.ctx.call(spec, x=x, y=y, **saved, **inputs)
    forward()
    forward.close()
    row = {"name": f"{spec} {rows}x{n} backward", "group": "grad_rows", "unit": "TB/s", "notes": {}}
    call = bench.ctx.call(spec, backward=True, x=x, dy=dy, **saved, **inputs, **grads)
    bench.infos.setdefault(row["name"], call.info)
    calls = {"ours": call, "copy": lambda: target.copy_(x)}
    bench.add_candidates(row, calls, {"torch": lambda: peers.rowwise_grad(spec, x, dy, inputs)})
    work = {name: (2 if name == "copy" else 3) * x.nbytes / 1e9 for name in calls}  # x and dy in, dx out
    bench.measure(row, calls, work)
    for g in grads.values():
        g.fill_(math.nan)
    call()
    torch.cuda.synchronize()
    row["errors"] = rowwise_errors(spec, x, dy, inputs, grads)
    row["error"] = max(row["errors"].values())
    bench.finish(row, {"copy": bar}, row["error"] <= ERROR_BOUND)
    call.close()


def rowwise_errors(spec, x, dy, inputs, grads):
    """In chunks of rows: dx on the first and last chunk, the sums over all rows."""
    worst = {"dx": 0.0}
    sums = {}
    for row0 in range(0, x.shape[0], CHUNK):
        row1 = min(row0 + CHUNK, x.shape[0])
        dx, parts = rowwise_formula(spec, x[row0:row1].double(), dy[row0:row1].double(),
                                    {name: t.double() for name, t in inputs.items()})
        if row0 == 0 or row1 == x.shape[0]:
            worst["dx"] = max(worst["dx"], relative(grads["dx"][row0:row1], dx))
        sums = {name: part + sums.get(name, 0.0) for name, part in parts.items()}
    for name, total in sums.items():
        worst["d" + name] = relative(grads["d" + name], total)
    return worst


def rowwise_formula(spec, x, dy, inputs):
    if spec == "softmax":
        y = torch.softmax(x, -1)
        return y * (dy - (y * dy).sum(-1, keepdim=True)), {}
    centred = x - x.mean(-1, keepdim=True) if spec == "layer_norm" else x
    rstd = torch.rsqrt((centred * centred).mean(-1, keepdim=True) + cases.EPS)
    unit = centred * rstd
    g = dy * inputs["weight"]
    dx = g - unit * (g * unit).mean(-1, keepdim=True)
    parts = {"weight": (dy * unit).sum(0)}
    if spec == "layer_norm":
        dx = dx - g.mean(-1, keepdim=True)
        parts["bias"] = dy.sum(0)
    return dx * rstd, parts


# ---- which rows ------------------------------------------------------------------------------------------

def add(bench, group, problem, peers_of, bars, baseline=None):
    name = f"{problem.title()} backward" + (" deterministic" if baseline else "")
    bench.guard(name, group, lambda: attention(bench, problem, peers_of, bars, group, baseline))


FUSED = {
    "cudnn": lambda g: peers.sdpa_grad(g, "CUDNN_ATTENTION"),
    "flash": lambda g: peers.sdpa_grad(g, "FLASH_ATTENTION"),
}


def all_rows(bench, plain_sizes, size):
    for d, sizes in plain_sizes.items():
        for b, h, s in sizes:
            for variant in ("causal", "full"):
                problem = cases.Problem(variant, *size(bench.options, b, h, s), d)
                add(bench, "grad", problem, FUSED, {"cudnn": 1.0 if d == 256 else 1.08})
    for variant, bar in FLEX_BARS.items():
        problem = cases.Problem(variant, *size(bench.options, 2, 16, 8192), 128)
        add(bench, "grad_mods", problem, {} if bench.options.no_flex else {"flex": peers.flex_grad}, {"flex": bar})
    problem = cases.Problem("causal", *size(bench.options, 2, 16, 8192), 128)
    add(bench, "grad_mods", problem, {}, {"atomics": 0.78}, baseline="atomics")
    rows, n = (16384, 8192) if bench.options.shrink == 1 else (40, 96)
    for spec in ("softmax", "rms_norm", "layer_norm"):
        bench.guard(f"{spec} {rows}x{n} backward", "grad_rows", lambda s=spec: rowwise(bench, s, rows, n, 0.85))
