#!/usr/bin/env python3
"""compare.py: Lathe's kernels beside what else runs on the same GPU, in one process, under one timer.

    python3 tests/bench/compare.py --library build/liblathe.so --out build/bench

Random inputs; the candidates of a row take turns, once in short bursts with pauses and once sustained (timer.py); medians.
Every output is checked on sampled rows against a float64 formula written in cases.py. The last thing printed is one
table; --out gets it as compare.md, every figure as compare.json and a plot as compare.png. Exit code 1: an output
was wrong or a row did not run; 77: torch or the GPU is not here (check.py needs neither).
"""

import argparse
import json
import math
import os
import sys
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import results  # noqa: E402


FURTHER_PEERS = ("fa4", "flex_fa4")


def further_peers(text):
    names = text.split(",")
    if set(names) - set(FURTHER_PEERS):
        raise argparse.ArgumentTypeError(f"{text}: the names are {', '.join(FURTHER_PEERS)}")
    return names


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default="build/liblathe.so", help="path of liblathe.so")
    parser.add_argument("--cache", help="kernel cache folder (default: the library's)")
    parser.add_argument("--out", help="folder for compare.json, compare.md and compare.png")
    parser.add_argument("--only", help="rows whose group and name contain one of these, with commas: plain, mods, gqa, dims, "
                                       "rowwise, backward, grad_mods, rows_all, rows_lengths, D128, ...")
    parser.add_argument("--template", help="templates by name, with commas, as LATHE_TEMPLATE has them")
    parser.add_argument("--mode", choices=("both", "burst", "sustained"), default="both")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter bursts")
    parser.add_argument("--peers", type=further_peers, default=[],
                        help="peers that need the wheel flash-attn-4, beside attention: " + ",".join(FURTHER_PEERS))
    parser.add_argument("--no-flex", action="store_true", help="leave FlexAttention out (its compilation takes time)")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out of the row-wise rows")
    parser.add_argument("--verbose", action="store_true", help="the whole traceback of a row that fails")
    parser.add_argument("--device", type=int, default=0, help="CUDA device (-1: the host device, for tests)")
    parser.add_argument("--shrink", type=int, default=1, help="lengths divided by this (for tests)")
    results.add_option(parser)
    return parser.parse_args(arguments)


try:
    import torch
    import torch._dynamo
except (ImportError, OSError) as missing:  # OSError: a library that torch needs
    if __name__ != "__main__":
        raise
    parse(None)  # --help and wrong options are answered all the same
    print(f"skipped: compare.py measures beside torch, which cannot be imported here ({str(missing).partition(chr(10))[0]}); "
          "check.py beside it tests the benchmark's scripts with NumPy alone")
    sys.exit(77)

import cases  # noqa: E402
import grads  # noqa: E402
import lathe  # noqa: E402
import maps  # noqa: E402
import peers  # noqa: E402
import plot  # noqa: E402
import report  # noqa: E402
import rows  # noqa: E402
import timer  # noqa: E402

ERROR_BOUND = 1e-2  # bf16, relative L2 on sampled rows
MEANS = {"plain": 1.18, "grad": grads.MEAN}  # geometric mean of a group over cuDNN

# (batch, heads, length) at 16 K tokens and 2048 columns of heads, by head dim
PLAIN_SIZES = {128: ((16, 16, 1024), (4, 16, 4096), (1, 16, 16384)),
               64: ((16, 32, 1024), (4, 32, 4096), (1, 32, 16384)),
               256: ((16, 8, 1024), (4, 8, 4096), (1, 8, 16384))}
# over our plain kernel on the live part, over FlexAttention
MOD_BARS = {"alibi": (0.90, 1.8), "window": (0.90, 1.8), "document": (0.90, 1.8), "prefix_lm": (0.90, 1.8),
            "softcap": (0.80, 2.5), "relative_bias": (0.75, 2.5), "sigmoid": (1.03, None), "relu": (1.03, None),
            "retention": (0.95, None)}
HEAD_DIMS = ((96, 96), (192, 192), (192, 128), (128, 256), (64, 256))


class Bench:
    """The context, the timers, and the rows measured so far."""

    def __init__(self, options):
        self.options = options
        self.ctx = lathe.Context(options.library, device=options.device, cache_dir=options.cache)
        self.timers = timer.timers(options.quick)
        if options.mode != "both":
            self.timers = {options.mode: self.timers[options.mode]}
        self.other = None
        self.rows = []
        self.infos = {}

    def deterministic(self):
        """A context of the same device and cache whose backward passes give the same bits from run to run."""
        if not self.other:
            self.other = lathe.Context(self.options.library, device=self.options.device, cache_dir=self.options.cache,
                                       deterministic=True)
        return self.other

    # ---- one row

    def ours(self, problem):
        call = self.ctx.call(problem.spec(), o=problem.out, **problem.tensors, **problem.inputs, **problem.variant.scalars)
        self.infos.setdefault(problem.title(), call.info)
        return call

    def add_candidates(self, row, calls, makers):
        """To calls. makers: {candidate: what makes its call}; the row notes why one is left out."""
        for name, make in makers.items():
            call, why = peers.attempt(make)
            if call:
                calls[name] = call
            else:
                row["notes"][name] = why

    def measure(self, row, calls, work):
        """work: of each candidate, in the row's unit times milliseconds."""
        row["modes"] = {}
        for mode, clock in self.timers.items():
            times = clock.measure(calls)
            row["modes"][mode] = {"times": times, "rates": {name: work[name] / t["ms"] for name, t in times.items()}}

    def check_peers(self, row, bound):
        """A figure that belongs to another result than ours is none."""
        for name, error in row["peer_errors"].items():
            if not error <= bound:
                row["notes"][name] = f"wrong, error {error:.2g}"
                for figures in row["modes"].values():
                    del figures["rates"][name]

    def attention(self, problem, peers_of, bars, group, plain=None):
        """bars: {candidate: least ratio of our rate over its}. plain: the variant that our plain kernel runs on the same
        tensors, as the candidate "plain", counted in its own pairs. Where the live part is a causal problem of its own, that is
        the candidate "alone", by our plain kernel: what short rows cost, mask or no mask."""
        problem.allocate(seed=len(self.rows))
        peers_of = {**peers_of, **peers.further(self.options.peers, problem)}
        row = {"name": problem.title(), "group": group, "unit": "TFLOP/s", "notes": {}}
        calls = {"ours": self.ours(problem)}
        opened = [calls["ours"]]
        work = {"ours": problem.flops() / 1e9}
        if plain:
            base = cases.Problem(plain, problem.b, problem.h, problem.q, problem.d, problem.h_kv, problem.d_v, problem.dtype)
            base.tensors, base.out, base.inputs = problem.tensors, torch.empty_like(problem.out), {}
            calls["plain"], work["plain"] = self.ours(base), base.flops() / 1e9
            opened.append(calls["plain"])
        if problem.variant.parts > 1 and problem.h == problem.h_kv and problem.q % problem.variant.parts == 0:
            short = problem.alone()
            opened.append(self.ours(short))
            calls["alone"], work["alone"] = opened[-1], work["ours"]
        self.add_candidates(row, calls, peers_of)
        self.measure(row, calls, dict.fromkeys(calls, work["ours"]) | work)
        problem.out.fill_(math.nan)
        calls["ours"]()
        torch.cuda.synchronize()
        row["error"] = problem.error(problem.out)
        row["peer_errors"] = {name: problem.error(call()) for name, call in calls.items() if name in peers_of}
        if "alone" in calls:
            row["peer_errors"]["alone"] = problem.error(short.out.reshape(*problem.out.shape))
        self.check_peers(row, problem.exact(ERROR_BOUND))
        self.finish(row, bars, row["error"] <= problem.exact(ERROR_BOUND))
        for call in opened:
            call.close()

    def rowwise(self, spec, rows, n, bar):
        torch.manual_seed(len(self.rows))
        x = torch.randn(rows, n, dtype=torch.bfloat16, device="cuda")
        y = torch.empty_like(x)
        target = torch.empty_like(x)
        inputs = cases.rowwise_inputs(spec, n, torch.bfloat16)
        row = {"name": f"{spec} {rows}x{n}", "group": "rowwise", "unit": "TB/s", "notes": {}}
        call = self.ctx.call(spec, x=x, y=y, **inputs)
        self.infos.setdefault(row["name"], call.info)
        calls = {"ours": call, "copy": lambda: target.copy_(x), "torch": lambda: cases.rowwise_torch(spec, x, inputs)}
        if not self.options.no_compile:
            torch._dynamo.reset()
            compiled = torch.compile(cases.rowwise_torch, dynamic=False)
            self.add_candidates(row, calls, {"torch.compile": lambda: lambda: compiled(spec, x, inputs)})
        self.measure(row, calls, {name: 2 * x.nbytes / 1e9 for name in calls})
        y.fill_(math.nan)
        call()
        torch.cuda.synchronize()
        row["error"] = cases.rowwise_error(spec, x, inputs, y)
        self.finish(row, {"copy": bar})
        call.close()

    def finish(self, row, bars, right=None):
        """Peers that were asked for have no bar: their ratios are shown."""
        row["right"] = row["error"] <= ERROR_BOUND if right is None else right
        measured = {peer for figures in row["modes"].values() for peer in figures["rates"]}
        bars = {**bars, **{peer: 0.0 for peer in measured if peer.split()[0] in self.options.peers}}
        row["checks"] = [{"mode": mode, "peer": peer, "bar": bar,
                          "ratio": figures["rates"]["ours"] / figures["rates"][peer]}
                         for mode, figures in row["modes"].items() for peer, bar in bars.items()
                         if bar is not None and peer in figures["rates"]]
        row["met"] = row["right"] and all(c["ratio"] >= c["bar"] for c in row["checks"])
        self.rows.append(row)
        rates = "; ".join(f"{mode} " + ", ".join(f"{peer} {rate:.4g}" for peer, rate in figures["rates"].items())
                          for mode, figures in row["modes"].items())
        notes = "".join(f"; {peer} left out: {why}" for peer, why in row["notes"].items())
        print(f"{row['name']}: {rates} {row['unit']}; error {row['error']:.2g}{notes}", flush=True)

    def guard(self, name, group, function):
        """Run one row if it is asked for; a row that fails is a row of the table too."""
        if self.options.only and not any(part in f"{group} {name}" for part in self.options.only.split(",")):
            return
        try:
            function()
        except Exception as error:  # noqa: BLE001: the other rows still count
            text = f"{type(error).__name__}: {str(error).splitlines()[0][:300] if str(error) else ''}"
            print(f"{name}: did not run: {text}", flush=True)
            if self.options.verbose:
                traceback.print_exc()
            self.rows.append({"name": name, "group": group, "failed": text, "met": False, "right": False})
        finally:
            torch.cuda.empty_cache()


# ---- which rows --------------------------------------------------------------------------------------------

def size(options, b, h, s):
    """Smaller by --shrink, for tests without a GPU."""
    k = options.shrink
    return (b, h, s) if k == 1 else (min(b, 2), min(h, 2), max(s // k, 24))


def add(bench, group, problem, peers_of, bars, plain=None):
    bench.guard(problem.title(), group, lambda: bench.attention(problem, peers_of, bars, group, plain))


def plain_rows(bench):
    for d, sizes in PLAIN_SIZES.items():
        for b, h, s in sizes:
            for variant in ("causal", "full"):
                problem = cases.Problem(variant, *size(bench.options, b, h, s), d)
                add(bench, "plain", problem, peers.fused(problem), {"cudnn": 1.05})


def mod_rows(bench):
    for variant, (over_plain, over_flex) in MOD_BARS.items():
        problem = cases.Problem(variant, *size(bench.options, 2, 16, 8192), 128)
        wanted = problem.variant.flex and not bench.options.no_flex
        add(bench, "mods", problem, {"flex": lambda p=problem: peers.flex(p)} if wanted else {},
            {"plain": over_plain, "flex": over_flex}, plain="causal" if problem.variant.live else "full")


def shape_rows(bench):
    b, h, s = size(bench.options, 2, 32, 8192)
    problem = cases.Problem("causal", b, h, s, 128, h_kv=max(h // 4, 1))
    add(bench, "gqa", problem, peers.fused(problem), {"cudnn": 1.15})
    for d, d_v in HEAD_DIMS:
        for variant in ("causal", "full"):
            problem = cases.Problem(variant, *size(bench.options, 2, 16, 8192), d, d_v=d_v)
            add(bench, "dims", problem, peers.fused(problem), {"cudnn": 1.05})
            if (d, d_v) == (192, 128):  # latent attention as it is trained
                grads.add(bench, "dims", problem, grads.FUSED, {"cudnn": 1.15})


def f32_rows(bench):
    """Tensors in f32 beside FlexAttention, which multiplies them as f32 too: torch allows no tf32 unless it is asked to."""
    flex = not bench.options.no_flex
    for d in (64, 128):
        for variant in ("causal", "alibi"):
            problem = cases.Problem(variant, *size(bench.options, 2, 16, 4096), d, dtype=torch.float32)
            add(bench, "f32", problem, {"flex": lambda p=problem: peers.flex(p)} if flex else {}, {"flex": 1.0})
            grads.add(bench, "f32", problem, {"flex": peers.flex_grad} if flex else {}, {"flex": 1.0})


def rowwise_rows(bench):
    rows, n = (16384, 8192) if bench.options.shrink == 1 else (32, 96)
    for spec in ("softmax", "rms_norm", "layer_norm"):
        bench.guard(f"{spec} {rows}x{n}", "rowwise", lambda s=spec: bench.rowwise(s, rows, n, 0.92))


def main(arguments=None):
    options = parse(arguments)
    why = peers.missing(options.peers)
    if why:
        print(f"skipped: {why}")
        return 77
    if not torch.cuda.is_available():
        print("skipped: torch finds no GPU; check.py tests the benchmark's scripts without one")
        return 77
    torch.cuda.init()
    torch.cuda.set_device(0)
    if options.template:
        os.environ["LATHE_TEMPLATE"] = options.template
    with torch.no_grad():
        bench = Bench(options)
        plain_rows(bench)
        shape_rows(bench)
        mod_rows(bench)
        f32_rows(bench)
        rowwise_rows(bench)
        grads.all_rows(bench, PLAIN_SIZES, size)
        rows.all_rows(bench)
        if options.device >= 0:  # standin.py has no such formulas
            maps.all_rows(bench)
    summary = report.means(bench.rows, MEANS)
    if options.out:
        about = report.machine()
        os.makedirs(options.out, exist_ok=True)
        with open(os.path.join(options.out, "compare.json"), "w", encoding="utf-8") as file:
            json.dump({"machine": about, "rows": bench.rows, "means": summary, "kernels": bench.infos}, file, indent=1)
        with open(os.path.join(options.out, "compare.md"), "w", encoding="utf-8") as file:
            file.write(report.markdown(bench.rows, summary, about))
        plot.write(bench.rows, about, os.path.join(options.out, "compare.png"))
        lengths = [row for row in bench.rows if row["group"] == "rows_lengths"]
        plot.write_curves(lengths, rows.LENGTH_BAR, about, os.path.join(options.out, "lengths.png"))
    for name, table in report.tables(bench.rows, options.template).items():
        results.write(options, name, table, bench.ctx.device_name, report.ABOUT[name])
    print()
    print(report.text(bench.rows, summary))
    return 0 if all(row["right"] for row in bench.rows) else 1


if __name__ == "__main__":
    sys.exit(main())
