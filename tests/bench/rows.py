"""rows.py: rows of every shipped row-wise spec, forward and backward, and of three of them over row lengths.

Fewest bytes: every tensor that is handed over, read or written once. The formulas are plain torch, apart from the specs:
in float64 they check sampled rows, in fp32 between bf16 tensors torch.compile makes the peer of them. Gradients are checked along
random directions, by central differences of the float64 formula: dL/dx of sampled rows, sums over rows as a whole.
"""

import importlib
import math

import torch

from errors import relative

ERROR_BOUND = 1e-2
GRADIENT_BOUND = 2e-2
FORWARD_BAR = 0.92    # of a device copy, at 1 GiB of traffic
BACKWARD_BAR = 0.88
LENGTH_BAR = 0.80
OVER_COMPILED = {"softmax": (2.0, 1.0), "rms_norm": (1.0, 1.4), "layer_norm": (1.0, 1.4)}  # forward, backward
DIRECTIONS = 4
STEP = 1e-4
CHUNK = 512
EPS = 1e-6
CHANNELS = 16         # of a group
SEQUENCE = 1000       # the length of packed sequences
PACKED_CHUNK = 64
PACKED_SHAPES = ((1, 131072, 2048), (1, 1048576, 64))  # one tensor of packed sequences: tokens, channels or heads
LONG_SHAPES = ((1, 131072, 2048), (8, 16384, 2048), (1, 1048576, 64), (4, 8192, 128), (1, 65536, 64))  # running sums that nothing cuts
LENGTHS = (128, 256, 384, 512, 1000, 1024, 2048, 2560, 4096, 5000, 5120, 8192, 12288, 16384, 20480, 24576, 32768, 40960, 49152,
           65536, 100000, 131072, 262144)


def variance_rows(x, axis):
    centred = x - x.mean(axis, keepdim=True)
    return centred, (centred * centred).mean(axis, keepdim=True)


def rms(x):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + EPS)


def silu(x):
    return x * torch.sigmoid(x)


def layer(x):
    centred, variance = variance_rows(x, -1)
    return centred * torch.rsqrt(variance + EPS)


def normal(*shape):
    return torch.randn(*shape, dtype=torch.bfloat16, device="cuda")


def weight(rows, n, cols):
    return {"weight": 1.0 + 0.1 * normal(n)}


def weight_bias(rows, n, cols):
    return {"weight": 1.0 + 0.1 * normal(n), "bias": 0.1 * normal(n)}


def targets(rows, n, cols):
    generator = torch.Generator().manual_seed(3)
    return {"target": torch.randint(0, n, (rows,), generator=generator).to("cuda").to(torch.int32)}


def since(rows, n, cols):
    return {"since": (torch.arange(n, device="cuda") % SEQUENCE).to(torch.int32)}


def uncut(rows, n, cols):
    return {"since": torch.arange(n, device="cuda").to(torch.int32)}


def group_weight(rows, n, cols):
    return {"weight": 1.0 + 0.1 * normal(cols, CHANNELS)}


def group_weight_bias(rows, n, cols):
    return {**group_weight(rows, n, cols), "bias": 0.1 * normal(cols, CHANNELS)}


def group_scalars(rows, n, cols):
    return {"groups": cols, "channels": CHANNELS}


def by_channel(x, p):
    """weight and bias [groups, channels] on x [..., groups, channels * neighbours]"""
    split = x.reshape(*x.shape[:-1], CHANNELS, x.shape[-1] // CHANNELS) * p["weight"][..., None]
    return (split + p["bias"][..., None] if "bias" in p else split).reshape(*x.shape)


def segments(term, start):
    """Sums along dim -2 that begin anew where start holds: all sums before the start of the segment are taken off."""
    q = term.cumsum(-2)
    place = torch.arange(term.shape[-2], device="cuda")
    first = torch.cummax(torch.where(start, place, torch.zeros_like(place)), 0)[0]
    return q - torch.index_select(q - term, -2, first)


def loss(x, p):
    return torch.logsumexp(x, -1) - torch.gather(x, -1, p["target"][:, None].to(torch.int64))[:, 0]


class Operator:
    """`formula(x, inputs)` gives {result: tensor}; saved: statistics that the backward pass takes; reads: rows that it cannot do
    without; by_row: inputs with a row for each of x; values: results that are one per row. inputs and scalars are made of (rows,
    length of a row, columns of an inner operator or groups of one whose shape is [batch, groups, n])."""

    def __init__(self, spec, formula, inputs=None, saved=(), shape=(32768, 8192), reads=("x",), by_row=(), values=(),
                 inner=False, scalar=None, scalars=None):
        self.spec, self.formula, self.shape, self.reads = spec, formula, shape, reads
        self.inputs = inputs or (lambda rows, n, cols: {})
        self.scalars = scalars or (lambda rows, n, cols: {})
        self.saved, self.by_row, self.values, self.inner = saved, by_row, values, inner
        self.scalar = scalar  # (result, total): the loss is the total of a result per row
        self.axis = -2 if inner else -1


def single(function):
    return lambda x, p: {"y": function(x)}


OPERATORS = [
    Operator("softmax", single(lambda x: torch.softmax(x, -1))),
    Operator("log_softmax", single(lambda x: torch.log_softmax(x, -1)), saved=("lse",)),
    Operator("logsumexp", lambda x, p: {"lse": torch.logsumexp(x, -1)}, shape=(65536, 8192), saved=("lse",), values=("lse",)),
    Operator("rms_norm", lambda x, p: {"y": rms(x) * p["weight"]}, weight, ("rstd",)),
    Operator("srms_norm", single(rms), saved=("rstd",)),
    Operator("l2_norm", single(lambda x: x * torch.rsqrt((x * x).sum(-1, keepdim=True) + EPS)), saved=("rnorm",)),
    Operator("layer_norm", lambda x, p: {"y": layer(x) * p["weight"] + p["bias"]}, weight_bias, ("mean", "rstd")),
    Operator("layer_norm_residual", lambda x, p: {"y": layer(x + p["residual"]) * p["weight"] + p["bias"], "sum": x + p["residual"]},
             lambda rows, n, cols: {"residual": normal(rows, n), **weight_bias(rows, n, cols)}, ("mean", "rstd"), reads=("sum",),
             by_row=("residual",)),
    Operator("rms_norm_residual", lambda x, p: {"y": rms(x + p["residual"]) * p["weight"], "sum": x + p["residual"]},
             lambda rows, n, cols: {"residual": normal(rows, n), **weight(rows, n, cols)}, ("rstd",), reads=("sum",),
             by_row=("residual",)),
    Operator("gate_rms_norm", lambda x, p: {"y": rms(x * silu(p["gate"])) * p["weight"]},
             lambda rows, n, cols: {"gate": normal(rows, n), **weight(rows, n, cols)}, ("rstd",), reads=("x", "gate"), by_row=("gate",)),
    Operator("rms_norm_gate", lambda x, p: {"y": rms(x) * p["weight"] * silu(p["gate"])},
             lambda rows, n, cols: {"gate": normal(rows, n), **weight(rows, n, cols)}, ("rstd",), reads=("x", "gate"), by_row=("gate",)),
    Operator("cross_entropy", lambda x, p: {"loss": loss(x, p)}, targets, ("lse",), shape=(8192, 65536), by_row=("target",),
             values=("loss", "lse"), scalar=("loss", "sum")),
    Operator("cumsum", single(lambda x: x.cumsum(-1)), reads=()),
    Operator("revcumsum", single(lambda x: x.flip(-1).cumsum(-1).flip(-1)), reads=()),
    Operator("chunk_cumsum", lambda x, p: {"y": segments(x, p["since"] % 64 == 0)}, since, shape=(32, 4096, 2048), reads=(), inner=True),
    Operator("cumsum_packed", lambda x, p: {"y": segments(x, p["since"] == 0)}, since, shape=(32, 4096, 2048), reads=(), inner=True),
    Operator("mean_pool", lambda x, p: {"mean": x.mean(-2)}, shape=(64, 4096, 2048), reads=(), values=("mean",), inner=True),
    Operator("softmax_inner", single(lambda x: torch.softmax(x, -2)), shape=(32, 4096, 2048), inner=True),
    Operator("log_softmax_inner", single(lambda x: torch.log_softmax(x, -2)), shape=(32, 4096, 2048), saved=("lse",), inner=True),
    Operator("group_norm", lambda x, p: {"y": by_channel(layer(x), p)}, group_weight_bias, ("mean", "rstd"), shape=(1024, 32, 8192),
             scalars=group_scalars),
    Operator("group_rms_norm", lambda x, p: {"y": by_channel(rms(x), p)}, group_weight, ("rstd",), shape=(1024, 32, 8192),
             scalars=group_scalars),
    Operator("logcumsumexp", single(lambda x: torch.logcumsumexp(x, -1))),
    Operator("revlogcumsumexp", single(lambda x: torch.logcumsumexp(x.flip(-1), -1).flip(-1))),
    # x is random normal: e^x is far from overflow, and no segment's sum is small beside what came before it
    Operator("logcumsumexp_packed", lambda x, p: {"y": torch.log(segments(torch.exp(x), p["since"] % PACKED_CHUNK == 0))}, since,
             shape=(32, 4096, 2048), inner=True, scalars=lambda rows, n, cols: {"chunk": PACKED_CHUNK}),
]
# shipped specs beside those of maps.py that have no row, and why
WITHOUT_ROW = {
    "block_lists": "integers only, a megabyte or so: a table of blocks for attention, bound by the launch",
    "differential": "two tensors in and one out as rms_norm_residual, which has a row",
    "largest": "each element is compared with all of its row: no copy of bytes is a measure of it",
    "nsa_gates": "sums of products, as swiglu, which has a row: bound by the bytes",
    "nsa_select": "each element is compared with all of its row: no copy of bytes is a measure of it",
    "topk": "each element is compared with all of its row: no copy of bytes is a measure of it",
    "packed_chunks": "integers only, a few kilobytes: bookkeeping of packed sequences, bound by the launch",
    "packed_offsets": "integers only, a few kilobytes: bookkeeping of packed sequences, bound by the launch",
    "packed_tokens": "integers only, 8 bytes a token: bookkeeping of packed sequences, bound by the launch",
    "rms_norm_conv": "short_conv of normalised tokens: no figure has been asked for so far",
    "sandwich_table": "a table of a few kilobytes that is made once",
    "short_conv": "four taps along time: no figure has been asked for so far",
    "short_conv_back": "the gradient of short_conv's tokens: no figure has been asked for so far",
    "short_conv_step": "one token for each sequence: bound by the launch",
    "row_scale": "x once and a number a row, as logsumexp, which has a row",
    "cache_append": "one token's keys and values for each sequence: bound by the launch",
    "rope_append": "the rotary of rope_half, and one token's keys and values for each sequence: bound by the launch",
}
BY_SPEC = {op.spec: op for op in OPERATORS}
NO_GRADIENT = ("target", "since")


class Rows:
    """The tensors of one operator at one shape."""

    def __init__(self, op, shape, seed):
        torch.manual_seed(seed)
        self.op, self.shape = op, tuple(shape)
        rows, n, cols = shape if op.inner else (shape[0], shape[-1], shape[1] if len(shape) == 3 else 1)
        self.per_row = (shape[0], shape[2]) if op.inner else tuple(shape[:-1])
        self.x = normal(*shape)
        self.inputs = op.inputs(rows, n, cols)
        self.scalars = op.scalars(rows, n, cols)
        self.results = self.outputs()

    def outputs(self):
        """What the forward pass writes: its rows, values per row, statistics."""
        out = {}
        for name in ("y", "sum"):
            if name == "y" and not self.op.values or name == "sum" and "sum" in self.op.reads:
                out[name] = torch.empty_like(self.x)
        for name in (*self.op.saved, *self.op.values):
            out[name] = torch.empty(*self.per_row, dtype=torch.float32, device="cuda")
        return out

    def forward(self, ctx, statistics):
        """statistics: also those that only a backward pass needs."""
        wanted = {name: t for name, t in self.results.items() if statistics or name not in self.op.saved or name in self.op.values}
        return ctx.call(self.op.spec, x=self.x, **self.inputs, **self.scalars, **wanted), [self.x, *self.inputs.values(), *wanted.values()]

    def differentiable(self):
        return {"x": self.x, **{name: t for name, t in self.inputs.items() if name not in NO_GRADIENT}}

    def whole(self, name):
        """An input that every row reads, or one number a row."""
        return name in self.inputs and (name not in self.op.by_row or self.inputs[name].ndim == 1)

    def prepare_backward(self):
        self.seeds = {}
        if self.op.scalar:
            self.seeds["d" + self.op.scalar[1]] = torch.full((), 1.0 / self.shape[0], dtype=torch.float32, device="cuda")
        else:
            for name in ("y", "sum"):
                if name in self.results:
                    self.seeds["d" + name] = normal(*self.shape)
            for name in self.op.values:
                self.seeds["d" + name] = torch.randn(*self.per_row, dtype=torch.float32, device="cuda")
        self.grads = {}
        for name, t in self.differentiable().items():
            rows = name == "x" or name in self.op.by_row
            self.grads["d" + name] = torch.empty_like(t) if rows else torch.empty(*t.shape, dtype=torch.float32, device="cuda")

    def backward(self, ctx):
        given = {"x": self.x, **self.inputs, **{name: self.results[name] for name in (*self.op.saved, "sum") if name in self.results}}
        call = ctx.call(self.op.spec, backward=True, **given, **self.scalars, **self.seeds, **self.grads)
        needed = [t for name, t in given.items() if name in self.op.reads or name in self.op.saved or self.whole(name)]
        return call, [*needed, *self.seeds.values(), *self.grads.values()]

    # ---- what it should be

    def part(self, rows):
        """(x, inputs, how a tensor of rows is cut) in float64, of those rows."""
        def cut(t):
            return t[rows]
        inputs = {name: cut(t) if name in self.op.by_row else t for name, t in self.inputs.items()}
        return cut(self.x).double(), {name: t.double() if t.is_floating_point() else t for name, t in inputs.items()}

    def sample(self):
        if self.op.inner:
            return torch.tensor([0, self.shape[0] - 1]).to("cuda")
        return torch.randint(0, self.shape[0], (64,), generator=torch.Generator().manual_seed(7)).to("cuda")

    def errors(self):
        rows = self.sample()
        expected = self.op.formula(*self.part(rows))
        return {name: relative(self.results[name][rows], want) for name, want in expected.items()}

    def value(self, x, inputs, rows):
        """dL/d... is of this: of every row, the results times their seeds."""
        total = 0.0
        for name, result in self.op.formula(x, inputs).items():
            if self.op.scalar:
                part = result / self.shape[0]
            elif "d" + name not in self.seeds:
                continue
            else:
                seed = self.seeds["d" + name][rows].double()
                part = result * seed if name in self.op.values else (result * seed).sum(self.op.axis)
            total = part + total
        return total

    def slopes(self, name, direction, rows):
        """Of every row, along a direction of x or of an input."""
        value = []
        for sign in (1.0, -1.0):
            x, inputs = self.part(rows)
            if name == "x":
                x = x + (sign * STEP) * direction
            else:
                inputs[name] = inputs[name] + (sign * STEP) * direction
            value.append(self.value(x, inputs, rows))
        return (value[0] - value[1]) / (2.0 * STEP)

    def gradient_errors(self):
        worst = {}
        rows = self.sample()
        for name in self.differentiable():
            got, want = [], []
            for _ in range(DIRECTIONS):
                if name == "x" or name in self.op.by_row:
                    of = self.grads["d" + name][rows].double()
                    direction = torch.randn(*of.shape, dtype=torch.float64, device="cuda")
                    got.append((of * direction).sum(self.op.axis))
                    want.append(self.slopes(name, direction, rows))
                else:
                    of = self.grads["d" + name].double()
                    direction = torch.randn(*of.shape, dtype=torch.float64, device="cuda")
                    got.append((of * direction).sum())
                    want.append(sum(self.slopes(name, direction, torch.arange(row, min(row + CHUNK, self.shape[0]), device="cuda")).sum()
                                    for row in range(0, self.shape[0], CHUNK)))
            worst["d" + name] = relative(torch.stack(got), torch.stack(want))
        return worst

    # ---- what torch.compile makes of the formula

    def user_function(self):
        names = list(self.inputs)
        op = self.op

        def function(x, *given):
            wide = {name: t.float() if t.is_floating_point() else t for name, t in zip(names, given)}
            made = op.formula(x.float(), wide)
            return [t if name in op.values else t.to(x.dtype) for name, t in made.items()]
        torch._dynamo.reset()
        return torch.compile(function, dynamic=False)

    def compiled_forward(self):
        function, given = self.user_function(), list(self.inputs.values())
        return lambda: function(self.x, *given)

    def compiled_backward(self):
        wanted = self.differentiable()
        function = self.user_function()
        if hasattr(torch, "_functorch"):  # the graph is asked again and again: its buffers may not be given away
            importlib.import_module("torch._functorch.config").donated_buffer = False
        with torch.enable_grad():
            leaves = {name: t.detach().clone().requires_grad_(True) for name, t in wanted.items()}
            out = function(leaves["x"], *[leaves.get(name, t) for name, t in self.inputs.items()])
        seeds = [torch.full_like(out[0], 1.0 / self.shape[0])] if self.op.scalar else list(self.seeds.values())
        return lambda: torch.autograd.grad(out, list(leaves.values()), seeds, retain_graph=True)


def small(options, op):
    if options.shrink == 1:
        return op.shape
    return (2, 70, 24) if op.inner else (5, 4, 96) if len(op.shape) == 3 else (40, 96)


# ---- rows of the table -----------------------------------------------------------------------------------------

def measure(bench, group, name, rows, opened, bars, compiled, check):
    call, tensors = opened
    target = torch.empty_like(rows.x)
    row = {"name": name, "group": group, "unit": "TB/s", "notes": {}}
    bench.infos.setdefault(name, call.info)
    calls = {"ours": call, "copy": lambda: target.copy_(rows.x)}
    work = {"ours": sum(t.nbytes for t in tensors) / 1e9, "copy": 2 * rows.x.nbytes / 1e9}
    if compiled and not bench.options.no_compile:
        bench.add_candidates(row, calls, {"torch.compile": compiled})
    bench.measure(row, calls, dict.fromkeys(calls, work["ours"]) | work)
    row["errors"] = check(call)
    row["error"] = max(row["errors"].values())
    bench.finish(row, bars, row["error"] <= (GRADIENT_BOUND if "backward" in name else ERROR_BOUND))
    call.close()
    return row


def run(call, tensors):
    for t in tensors:
        t.fill_(math.nan)
    call()
    torch.cuda.synchronize()


def forward(bench, group, name, op, shape, bars, compiled):
    rows = Rows(op, shape, len(bench.rows))

    def check(call):
        run(call, rows.results.values())
        return rows.errors()
    return measure(bench, group, name, rows, rows.forward(bench.ctx, False), bars, rows.compiled_forward if compiled else None, check)


def backward(bench, group, name, op, shape, bars, compiled):
    rows = Rows(op, shape, len(bench.rows))
    before, _ = rows.forward(bench.ctx, True)
    before()
    torch.cuda.synchronize()
    before.close()
    rows.prepare_backward()

    def check(call):
        run(call, rows.grads.values())
        return rows.gradient_errors()
    return measure(bench, group, name, rows, rows.backward(bench.ctx), bars, rows.compiled_backward if compiled else None, check)


def title(op, shape, backwards):
    return f"{op.spec} {'x'.join(map(str, shape))}{' backward' if backwards else ''}"


def all_rows(bench):
    for op in OPERATORS:
        shape = small(bench.options, op)
        for backwards, make in ((False, forward), (True, backward)):
            over = OVER_COMPILED.get(op.spec, (1.0, 1.0))[backwards]
            bars = {"copy": BACKWARD_BAR if backwards else FORWARD_BAR, "torch.compile": over}
            name = title(op, shape, backwards)
            bench.guard(name, "rows_all", lambda m=make, n=name, o=op, s=shape, b=bars: m(bench, "rows_all", n, o, s, b, True))
    packed_rows(bench)
    length_rows(bench)


def packed_rows(bench):
    for spec in ("chunk_cumsum", "cumsum_packed", "logcumsumexp_packed"):
        for shape in PACKED_SHAPES:
            packed_row(bench, BY_SPEC[spec], shape, "")
    long = Operator("cumsum_packed", BY_SPEC["cumsum_packed"].formula, uncut, reads=(), inner=True)
    for shape in LONG_SHAPES:
        packed_row(bench, long, shape, ", uncut")


def packed_row(bench, op, shape, how):
    """Bars are for 1 GiB of traffic."""
    large = math.prod(shape) >= 1 << 28
    shape = shape if bench.options.shrink == 1 else (1, 90, 24)
    for backwards, make, bar in ((False, forward, FORWARD_BAR), (True, backward, BACKWARD_BAR)):
        name = title(op, shape, backwards) + how
        bench.guard(name, "rows_packed", lambda m=make, n=name, b={"copy": bar if large else None}:
                    m(bench, "rows_packed", n, op, shape, b, False))


def length_rows(bench):
    elements = 1 << (27 if bench.options.quick else 28)
    lengths = LENGTHS if bench.options.shrink == 1 else (40, 96, 100)
    for spec in ("softmax", "rms_norm", "layer_norm"):
        for backwards, make in ((False, forward), (True, backward)):
            for n in lengths:
                shape = (max(elements // n, 1) if bench.options.shrink == 1 else 6, n)
                op, name = BY_SPEC[spec], title(BY_SPEC[spec], shape, backwards)
                bench.guard(name, "rows_lengths", lambda m=make, a=name, o=op, s=shape:
                            m(bench, "rows_lengths", a, o, s, {"copy": LENGTH_BAR}, False))
