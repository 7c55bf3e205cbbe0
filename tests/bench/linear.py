#!/usr/bin/env python3
"""linear.py: linear attention, forward and backward, beside a device copy and flash-linear-attention.

    python3 tests/bench/linear.py --library build/liblathe.so [--only gla,step] [--shapes B8T2048] [--gates 8] [--peers] [--errors] [--quick]

Tensors are [b, t, h, d] in memory, as the peer has them. Bytes are the fewest that a pass must move: forward q, k, v, o and the
gates; backward q, k, v, do, dq, dk, dv, the gates and their gradients. o of two heads is checked against a recurrence in float64,
gradients too where t is at most 2048. Needs the GPU and torch (77: not here); --peers needs the package fla (fla-core). With
--errors each spec has a process of its own, as most of the time goes into compiling; stderr says what takes how long.
"""

import concurrent.futures
import contextlib
import importlib
import subprocess
import sys
import time

STARTED = time.monotonic()  # ahead of torch, whose import takes seconds

import alone  # noqa: E402
import lathe  # noqa: E402
import results  # noqa: E402
import timer  # noqa: E402
from errors import relative  # noqa: E402

torch = alone.torch
F = torch.nn.functional

# bf16, relative L2: additive, with the delta rule
ERROR_BOUNDS = {"o": (5e-3, 7e-3), "dq": (5e-3, 7e-3), "dk": (5e-3, 7e-3), "dv": (5e-3, 7e-3), "dg": (6e-3, 8e-3), "ddt": (6e-3, 0.0),
                **{n: (0.0, 8e-3) for n in ("dbeta", "dw", "dkappa", "deta", "derase", "dwrite")}}
PEER_BOUND = 1.5  # an error, of the peer's on the same data
CHECKED_TOKENS = 2048  # gradients in float64 keep every state
D = 128
SHAPES = {"B2T512": (2, 16, 512), "B8T2048": (8, 16, 2048), "B4T8192": (4, 16, 8192), "B1T32768": (1, 16, 32768)}

# spec -> which gates it has: g (w of rwkv7) per token or per key channel, dt of mamba2; whether a rule removes what it
# reads; whether q and k are made unit vectors
SPECS = {
    "linear": (None, False, False),
    "retention_linear": (None, False, False),
    "simple_gla": ("token", False, False),
    "mamba2": ("dt", False, False),
    "gla": ("channel", False, False),
    "delta_rule": (None, True, True),
    "gated_delta": ("token", True, True),
    "kda": ("channel", True, True),
    "rwkv7": ("channel", True, False),
    "comba": ("token", True, True),
    "gdn2": ("channel", True, True),
}


ABOUT = "`linear.py --peers`, ms (share of copy bandwidth, or of equal sequences)"
ABOUT_ERRORS = "`linear.py --errors --peers`, relative L2, 1e-3 (of FLA)"


@contextlib.contextmanager
def phase(what):
    """How long a part takes, on stderr, since when and by whom: many of these processes may run at a time."""
    began = time.monotonic()
    print(f"{began - STARTED:6.1f} s: {what}", file=sys.stderr, flush=True)
    yield
    print(f"{time.monotonic() - STARTED:6.1f} s: {what}: took {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)


def retention_log(h, device):
    return torch.log1p(-torch.exp2(-5.0 - torch.arange(h, device=device, dtype=torch.float64)))


class Problem:
    """Tensors of one spec and shape; in memory [b, t, h, d]."""

    def __init__(self, name, shape, device="cuda", gates=8.0):
        self.name, (self.b, self.h, self.t) = name, shape
        decay, self.delta, self.unit = SPECS[name]
        generator = torch.Generator(device=device).manual_seed(7)

        def normal(*dims):
            return torch.randn(dims, generator=generator, device=device, dtype=torch.float32)
        wide = (self.b, self.t, self.h, D)
        self.given = {n: normal(*wide).bfloat16() for n in ("q", "k", "v")}
        self.do = normal(*wide).bfloat16()
        if decay == "dt":
            self.given.update(dt=normal(*wide[:3]).bfloat16(), dt_bias=torch.full((self.h,), -4.0, device=device),
                              a_log=torch.linspace(1.0, 16.0, self.h, device=device).log(), d_skip=normal(self.h))
        elif decay:
            drawn = F.logsigmoid(normal(*wide[:3 if decay == "token" else 4])) / gates
            self.given["w" if name == "rwkv7" else "g"] = drawn.bfloat16()
        if self.delta:
            self.given.update(self.rule(normal, wide))

    def rule(self, normal, wide):
        """What says how much of what is read goes, and in rwkv7 and comba what reads."""
        if self.name == "rwkv7":
            kappa = F.normalize(normal(*wide), dim=-1)
            return {"kappa": kappa.bfloat16(), "eta": torch.sigmoid(normal(*wide)).bfloat16()}
        if self.name == "gdn2":
            return {n: torch.sigmoid(normal(*wide)).bfloat16() for n in ("erase", "write")}
        beta = {"beta": torch.sigmoid(normal(*wide[:3])).bfloat16()}
        return beta | {"part": torch.sigmoid(normal(self.h))} if self.name == "comba" else beta

    @staticmethod
    def heads_first(x):
        return x.transpose(1, 2) if x.dim() > 1 else x

    def forward_arguments(self):
        o = torch.empty_like(self.given["v"])
        return o, dict({n: self.heads_first(x) for n, x in self.given.items()}, o=self.heads_first(o))

    def backward_arguments(self):
        # Gradients of inputs, gates among them, are f32.
        grads = {"d" + n: torch.empty_like(x, dtype=x.dtype if n in "qkv" else torch.float32) for n, x in self.given.items()}
        values = {**self.given, "do": self.do, **grads}
        return grads, {n: self.heads_first(x) for n, x in values.items()}

    def bytes(self, backward):
        size = sum(x.numel() * x.element_size() for x in self.given.values())
        one = self.do.numel() * self.do.element_size()
        grads = sum(x.numel() * (x.element_size() if n in "qkv" else 4) for n, x in self.given.items())
        return size + grads + one if backward else size + one

    def peer(self, given):
        """The same by flash-linear-attention."""
        q, k, v, g, beta = (given.get(n) for n in ("q", "k", "v", "g", "beta"))
        if self.name == "linear":
            from fla.ops.linear_attn import chunk_linear_attn
            return chunk_linear_attn(q, k, v, normalize=False)[0]
        if self.name == "retention_linear":
            from fla.ops.retention import chunk_retention
            return chunk_retention(q, k, v)[0]
        if self.name == "simple_gla":
            from fla.ops.simple_gla import chunk_simple_gla
            return chunk_simple_gla(q, k, v, g)[0]
        if self.name == "mamba2":
            from fla.ops.simple_gla import chunk_simple_gla
            step = F.softplus(given["dt"].float() + given["dt_bias"])
            o = chunk_simple_gla(q, k, (v * step[..., None]).to(v.dtype), -given["a_log"].exp() * step, scale=1.0)[0]
            return (o + given["d_skip"][:, None] * v).to(v.dtype)
        if self.name == "gla":
            from fla.ops.gla import chunk_gla
            return chunk_gla(q, k, v, g)[0]
        if self.name == "delta_rule":
            from fla.ops.delta_rule import chunk_delta_rule
            return chunk_delta_rule(q, k, v, beta, use_qk_l2norm_in_kernel=True)[0]
        if self.name == "gated_delta":
            from fla.ops.gated_delta_rule import chunk_gated_delta_rule
            return chunk_gated_delta_rule(q, k, v, g, beta, use_qk_l2norm_in_kernel=True)[0]
        if self.name == "kda":
            from fla.ops.kda import chunk_kda
            return chunk_kda(q, k, v, g, beta, use_qk_l2norm_in_kernel=True)[0]
        return self.peer_of_rule(q, k, v, given)

    def peer_of_rule(self, q, k, v, given):
        """What a rule reads and writes is made here of the same inputs, and its gradients lead back to them."""
        if self.name == "rwkv7":
            from fla.ops.rwkv7 import chunk_rwkv7
            return chunk_rwkv7(q, given["w"], k, v, -given["kappa"], given["kappa"] * given["eta"])[0]
        if self.name == "gdn2":
            from fla.ops.gdn2 import chunk_gdn2
            return chunk_gdn2(q, k, v, given["g"], given["erase"], given["write"], use_qk_l2norm_in_kernel=True)[0]
        from fla.modules.norm.l2norm import l2norm
        from fla.ops.comba import chunk_comba
        q, k = l2norm(q), l2norm(k)  # the kernel's own norm would take the part out of p
        p = (k * given["part"][:, None]).to(k.dtype)
        return chunk_comba(q, k, v, p, given["g"], given["beta"])[0]


def recurrence(problem, given):
    """o [t, heads, d] of the first head of the first batch and the last of the last; given: float64 tensors of these."""
    q, k, v = (given[n] for n in ("q", "k", "v"))
    if problem.unit:
        q, k = (x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6) for x in (q, k))
    scale, skip = 1.0 if problem.name == "rwkv7" else D ** -0.5, 0.0
    if problem.name == "mamba2":
        scale, skip = 1.0, given["d_skip"][:, None] * v
        v = v * F.softplus(given["dt"] + given["dt_bias"])[..., None]
    if problem.name == "gdn2":
        v = v * given["write"]
    decay = problem_decay(problem, given, q)
    state = torch.zeros(q.shape[1], D, D, dtype=torch.float64, device=q.device)
    rows = []
    for t in range(q.shape[0]):
        before = state
        if decay is not None:
            state = state * decay[t]
        state = state + written(problem, given, t, k, v, before, state)
        rows.append(torch.einsum("hi,hij->hj", q[t], state))
    return torch.stack(rows) * scale + skip


def written(problem, given, t, k, v, before, state):
    """What token t adds to the state; before: the state ahead of the decay, which rwkv7 and comba read."""
    def read(reader, of):
        return torch.einsum("hi,hij->hj", reader, of)
    value = v[t]
    if problem.name == "rwkv7":
        kappa = given["kappa"][t]
        removed = (kappa * given["eta"][t])[..., None] * read(kappa, before)[:, None, :]
        return k[t, :, :, None] * value[:, None, :] - removed
    if problem.name == "gdn2":
        value = value - read(given["erase"][t] * k[t], state)
    elif problem.name == "comba":
        value = given["beta"][t, :, None] * (value - read(given["part"][:, None] * k[t], before))
    elif "beta" in given:
        value = given["beta"][t, :, None] * (value - read(k[t], state))
    return k[t, :, :, None] * value[:, None, :]


def problem_decay(problem, given, q):
    """e^g [t, heads, 1 or d, 1]; None: no decay."""
    if problem.name == "retention_linear":
        ends = retention_log(problem.h, q.device)[[0, problem.h - 1]]
        return torch.exp(ends).expand(q.shape[0], 2)[:, :, None, None]
    if problem.name == "mamba2":
        return torch.exp(-given["a_log"].exp() * F.softplus(given["dt"] + given["dt_bias"]))[..., None, None]
    logarithm = given.get("w" if problem.name == "rwkv7" else "g")
    if logarithm is None:
        return None
    g = torch.exp(logarithm)
    return g[..., None] if g.dim() == 3 else g[..., None, None]


def two_heads(x):
    return torch.stack([x[0, :, 0], x[-1, :, -1]], 1) if x.dim() > 1 else x[[0, -1]]


def reference(problem, with_grads):
    """{"o": ..., "dq": ...} of two heads, in float64."""
    leaves = {n: two_heads(x).double().requires_grad_(with_grads) for n, x in problem.given.items()}
    want = {"o": recurrence(problem, leaves)}
    if with_grads:
        want["o"].backward(two_heads(problem.do).double())
        want.update({"d" + n: x.grad for n, x in leaves.items() if x.dim() > 1})  # the others are sums over all of b
    return {n: x.detach() for n, x in want.items()}


def errors_of(got, want):
    return {n: relative(two_heads(x), want[n]) for n, x in got.items() if n in want}


def copy_rate(clock):
    """Bytes read and written each second by a device copy of 1 GiB."""
    a = torch.randint(0, 255, (1 << 30,), dtype=torch.uint8, device="cuda")
    b = torch.empty_like(a)
    return 2e3 * a.numel() / clock.measure({"copy": lambda: b.copy_(a)})["copy"]["ms"]


def untuned():
    """The peer's kernels run as the first configuration that fits: seconds in place of minutes, and times that say nothing.

    The peer refuses gated backward passes on Hopper under Triton 3.4 to 3.7.0, whose code for them is wrong in places. Here
    they are run, since a wrong result shows in its errors.
    """
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.errors import OutOfResources
    tuned = Autotuner.run

    def run(self, *args, **kwargs):
        given = self.configs
        for n in range(len(given)):
            self.configs = given[n:n + 1]
            try:
                return tuned(self, *args, **kwargs)
            except OutOfResources:
                if n + 1 == len(given):
                    raise
            finally:
                self.configs = given
    Autotuner.run = run
    try:
        chunk_o = importlib.import_module("fla.ops.common.chunk_o")
    except ImportError:
        return  # told in the rows
    chunk_o.TRITON_ABOVE_3_7_1 = True


def compile_side_by_side():
    """The peer's tuner compiles one configuration after the other, for minutes: here all are compiled before it."""
    from triton.runtime.autotuner import Autotuner
    pruned = Autotuner.prune_configs

    def prune_configs(self, kwargs):
        configs = pruned(self, kwargs)

        def compile_one(config):
            with contextlib.suppress(Exception):  # the tuner meets what fails again
                self.fn.run(*self.nargs.values(), **{**kwargs, **config.all_kwargs(), "warmup": True})
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            list(pool.map(compile_one, configs))
        return configs
    Autotuner.prune_configs = prune_configs


def peer_calls(problem):
    """Forward, and backward, which gives {"dq": ...}. Beside the delta rule the peer wants g in f32, as its layers give it."""
    wide = problem.unit
    leaves = {n: x.detach().to(torch.float32 if n == "g" and wide else x.dtype, copy=True).requires_grad_(True) for n, x in problem.given.items()}
    with torch.enable_grad():
        out = problem.peer(leaves)

    def forward():
        with torch.no_grad():
            return problem.peer(leaves)

    def backward():
        return dict(zip(("d" + n for n in leaves), torch.autograd.grad(out, list(leaves.values()), problem.do, retain_graph=True)))
    return forward, backward


class Bench:
    def __init__(self, options):
        self.ctx = lathe.Context(options.library, device=0, cache_dir=options.cache)
        self.clock = timer.timers(options.quick)["burst"]
        self.peers = options.peers
        self.gates = options.gates
        self.errors = options.errors
        self.copy = float("nan") if self.errors else copy_rate(self.clock)
        self.right = True
        self.rows, self.error_rows = {}, {}  # of results.py
        copied = "" if self.errors else f"copy {self.copy / 1e12:.2f} TB/s; "
        print(f"{self.ctx.device_name}: {copied}bf16, d {D}")

    def report(self, title, ms, count, errors, note="", delta=False):
        rate = count / ms * 1e3
        wrong = [f"{n} {e:.1e}" for n, e in errors.items() if not e < ERROR_BOUNDS[n][delta]]
        self.right &= not wrong
        worst = max(errors.values()) if errors else float("nan")
        print(f"{title:38} {ms:8.3f} ms {rate / 1e12:5.2f} TB/s  {rate / self.copy:5.3f} of copy  error {worst:.1e}"
              f"{'  WRONG ' + ', '.join(wrong) if wrong else ''}{note}", flush=True)
        return not wrong

    def beside(self, title, problem, want, errors, timed):
        """The peer's calls into timed, and its errors beside ours."""
        theirs = {}
        try:
            timed["peer forward"], backward = peer_calls(problem)
            theirs.update(errors_of({"o": timed["peer forward"]()}, want))
            theirs.update(errors_of(backward(), want))
            timed["peer backward"] = backward
        except Exception as failure:  # noqa: BLE001  a peer that fails is a figure that is missing
            print(f"{title}: the peer failed: {failure}")
        for n, error in theirs.items():
            if n in errors:
                self.error_rows.setdefault(f"{title}, / {self.gates:g}", {})[n] = f"{1e3 * errors[n]:.2f} ({1e3 * error:.2f})"
            worse = n in errors and not errors[n] <= PEER_BOUND * error
            self.right &= not worse
            if n in errors:
                print(f"{title}: error of {n} {errors[n]:.2e}, of the peer's {error:.2e}{'  WORSE' if worse else ''}")

    def row(self, name, shape):
        problem = Problem(name, SHAPES[shape], gates=self.gates)
        o, forward_values = problem.forward_arguments()
        grads, backward_values = problem.backward_arguments()
        calls = {"forward": self.ctx.call(name, **forward_values)}
        try:
            calls["backward"] = self.ctx.call(name, backward=True, **backward_values)
        except lathe.Error as refusal:
            print(f"{name} {shape} backward: {refusal}")
        with phase(f"{name} {shape}: runs"):
            for call in calls.values():
                call()
            torch.cuda.synchronize()
        with_grads = "backward" in calls and problem.t <= CHECKED_TOKENS
        with phase(f"{name} {shape}: reference"):
            want = reference(problem, with_grads)
        errors = errors_of({"o": o, **grads}, want)
        timed = dict(calls)
        if self.peers:
            with phase(f"{name} {shape}: peer"):
                self.beside(f"{name} {shape}", problem, want, errors, timed)
        times = {n: {"ms": float("nan")} for n in calls} if self.errors else self.clock.measure(timed)
        for way in calls:
            beside = times.get("peer " + way)
            note = f"  {beside['ms'] / times[way]['ms']:5.2f} x peer ({beside['ms']:.3f} ms)" if beside else ""
            shown = {n: e for n, e in errors.items() if (n == "o") == (way == "forward")}
            label = next((line.split()[-1] for line in calls[way].info.splitlines() if line.split()[:1] == ["label"]), "")
            right = self.report(f"{name} {shape} {way}", times[way]["ms"], problem.bytes(way == "backward"), shown,
                                note + "  " + label, problem.delta)
            if right and not self.errors:
                rate = problem.bytes(way == "backward") / times[way]["ms"] * 1e3 / self.copy
                over = f", {beside['ms'] / times[way]['ms']:.2f} x FLA" if beside else ""
                self.rows.setdefault(f"{name} {way}", {})[shape] = f"{times[way]['ms']:.3f} ({rate:.2f}){over}"
        for call in calls.values():
            call.close()

    def write(self, options):
        card = self.ctx.device_name
        results.write(options, "linear attention", self.rows, card, ABOUT)
        results.write(options, "errors of linear attention", self.error_rows if self.errors else {}, card, ABOUT_ERRORS)

    def step(self, b=64, h=32):
        """One token for each of many sequences, the state updated where it is."""
        for name in ("simple_gla", "gated_delta"):
            decay, delta, _ = SPECS[name]
            q, k, v, o = (torch.randn(b, h, 1, D, device="cuda").bfloat16() for _ in range(4))
            state = torch.randn(b, h, D, D, device="cuda")
            gates = {"g": -torch.rand(b, h, 1, device="cuda").bfloat16()} if decay else {}
            if delta:
                gates["beta"] = torch.rand(b, h, 1, device="cuda").bfloat16()
            call = self.ctx.call(name, q=q, k=k, v=v, o=o, state=state, state_out=state, **gates)
            ms = self.clock.measure({"step": call})["step"]["ms"]
            share = 2 * state.numel() * 4 / ms * 1e3 / self.copy
            self.rows[f"{name}, {b} x {h} steps"] = {"other": f"{ms:.3f} ({share:.2f})"}
            self.report(f"{name} step {b} x {h}", ms, 2 * state.numel() * 4, {})

    def packed(self):
        """Sequences of mixed lengths beside the same tokens in equal ones."""
        lengths = [64, 4096, 130, 2048, 1000, 3000, 512, 256, 77, 2113, 1024, 2064]
        total = sum(lengths)
        cu = torch.tensor([sum(lengths[:n]) for n in range(len(lengths) + 1)], dtype=torch.int32, device="cuda")
        for name in ("simple_gla", "gated_delta"):
            values = {}
            for n, dims in (("q", 4), ("k", 4), ("v", 4), ("g", 3), ("beta", 3)):
                if n != "beta" or SPECS[name][1]:
                    x = torch.randn(1, total, 16, *([D] if dims == 4 else []), device="cuda")
                    x = x if dims == 4 else torch.sigmoid(x) * (-0.2 if n == "g" else 1.0)
                    values[n] = x.bfloat16().transpose(1, 2)
            o = torch.empty_like(values["v"])
            b = 8
            equal = {n: x[:, :, :total // b * b].reshape(16, b, -1, *x.shape[3:]).transpose(0, 1).contiguous() for n, x in values.items()}
            apart = self.ctx.call(name, o=torch.empty_like(equal["v"]), **equal)
            mixed = self.ctx.call(name, o=o, cu=cu, **values)
            times = self.clock.measure({"equal": apart, "packed": mixed})
            self.rows[f"{name}, packed"] = {"other": f"{times['packed']['ms']:.3f} ({times['equal']['ms'] / times['packed']['ms']:.2f})"}
            print(f"{name} packed, 12 sequences of 64 to 4096: {times['packed']['ms']:.3f} ms, "
                  f"{times['equal']['ms'] / times['packed']['ms']:.3f} of the same tokens in 8 equal sequences")


def side_by_side(names):
    """The same for each spec in a process of its own; the worst of their exit codes."""
    runs = [subprocess.Popen([sys.executable, *sys.argv, "--only", name]) for name in names]
    return max(abs(run.wait()) for run in runs)


def warm(bench, names):
    """Kernels compile side by side into the context's cache."""
    def compile_one(name, backward):
        problem = Problem(name, (1, 16, 64))
        values = problem.backward_arguments()[1] if backward else problem.forward_arguments()[1]
        try:
            bench.ctx.call(name, backward=backward, **values).close()
        except lathe.Error:
            pass  # told in its row
    for name in names:
        bench.ctx.spec(name)
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        list(pool.map(lambda pair: compile_one(*pair), [(n, way) for n in names for way in (False, True)]))


def main():
    parser = alone.parser(__doc__)
    parser.add_argument("--only", default="", help="specs, step, packed; with commas")
    parser.add_argument("--shapes", default="B8T2048,B4T8192", help="of " + ", ".join(SHAPES))
    parser.add_argument("--gates", type=float, default=8.0, help="what the logarithms of decays, of sigmoids of normal numbers, are divided by")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--errors", action="store_true", help="errors of specs and no times; the peer's kernels are not tuned")
    options = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)
    alone.need_gpu()
    wanted = [n for n in options.only.split(",") if n]
    names = [n for n in SPECS if not wanted or n in wanted]
    if options.errors and len(names) > 1:
        sys.exit(side_by_side(names))
    with phase("opens the device"):
        bench = Bench(options)
    with phase(f"compiles {','.join(names)}"):
        warm(bench, names)
    if options.errors and options.peers:
        with phase("imports the peer"):
            untuned()
    elif options.peers:
        compile_side_by_side()
    for name in names:
        for shape in options.shapes.split(","):
            bench.row(name, shape)
    for name in ("step", "packed"):
        if not options.errors and (not wanted or name in wanted):
            getattr(bench, name)()
    bench.write(options)
    sys.exit(0 if bench.right else 1)


if __name__ == "__main__":
    main()
