#!/usr/bin/env python3
"""compare.py: Lathe's kernels beside what else runs on the same GPU, in one process, under one timer.

    python3 tests/bench/compare.py --library build/liblathe.so --out build/bench

Random inputs; CUDA events around bursts of launches; the candidates of a row take turns, with a pause before each burst
so that a power-limited card cools; medians. Every output is checked on sampled rows against a float64 formula written
in cases.py. The last thing printed is one table. Exit code 1: an output was wrong or a row did not run.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import torch
import torch._dynamo
import torch.nn.functional as F

import cases
import lathe

ERROR_BOUND = 1e-2  # bf16, relative L2 on sampled rows


# ---- timing --------------------------------------------------------------------------------------------

class Timer:
    """Median milliseconds per call of several candidates, measured in turns."""

    def __init__(self, rounds, pause, burst_ms):
        self.rounds, self.pause, self.burst_ms = rounds, pause, burst_ms

    @staticmethod
    def burst(call, n):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(n):
            call()
        stop.record()
        stop.synchronize()
        return start.elapsed_time(stop) / n

    def measure(self, calls):
        """{name: callable} -> {name: {"ms", "min", "max"}}"""
        counts = {}
        for name, call in calls.items():
            self.burst(call, 2)  # warm up: compile, allocate
            counts[name] = max(3, min(300, math.ceil(self.burst_ms / max(self.burst(call, 3), 1e-3))))
        samples = {name: [] for name in calls}
        names = list(calls)
        for turn in range(self.rounds):
            for name in names[turn % len(names):] + names[:turn % len(names)]:
                time.sleep(self.pause)
                calls[name]()  # the clock rises and the instruction cache fills before the burst
                samples[name].append(self.burst(calls[name], counts[name]))
        return {name: {"ms": statistics.median(s), "min": min(s), "max": max(s)} for name, s in samples.items()}


# ---- candidates ------------------------------------------------------------------------------------------

def sdpa(problem, backend, causal):
    from torch.nn.attention import sdpa_kernel
    q, k, v = (problem.tensors[name] for name in "qkv")
    grouped = {"enable_gqa": True} if problem.h != problem.h_kv else {}

    def call():
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal, **grouped)
    return call


def flex(problem):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    score, mask = cases.flex_mods(problem)
    block_mask = None
    if mask:
        batch = problem.b if problem.inputs else None
        block_mask = create_block_mask(mask, batch, None, problem.q, problem.kv, device="cuda")
    torch._dynamo.reset()  # each variant compiles afresh, none meets the limit on recompilations
    compiled = torch.compile(flex_attention, dynamic=False)
    q, k, v = (problem.tensors[name] for name in "qkv")

    def call():
        return compiled(q, k, v, score_mod=score, block_mask=block_mask, enable_gqa=problem.h != problem.h_kv)
    return call


def ours(bench, problem):
    call = bench.ctx.call(problem.variant.spec, o=problem.out, **problem.tensors, **problem.inputs,
                          **problem.variant.scalars)
    bench.infos.setdefault(problem.variant.spec, []).append(call.info)
    return call


# ---- rows ------------------------------------------------------------------------------------------------

class Bench:
    """The context, the timer, and the rows measured so far."""

    def __init__(self, options):
        self.options = options
        self.ctx = lathe.Context(options.library, device=0, cache_dir=options.cache)
        quick = options.quick
        self.timer = Timer(rounds=3 if quick else 9, pause=0.05 if quick else 0.2, burst_ms=10 if quick else 30)
        self.rows = []
        self.infos = {}
        self.plain = {}  # TFLOP/s of the plain kernels, for the variants

    def try_candidate(self, make, *arguments):
        """A peer that does not run here is left out, with its reason."""
        try:
            call = make(*arguments)
            call()
            torch.cuda.synchronize()
            return call, None
        except Exception as error:  # noqa: BLE001: any reason a peer has
            return None, f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}"

    def attention(self, name, problem, peers, bar, baseline=None, beat=None):
        """bar: least ratio to `baseline`, a (name, TFLOP/s) measured before, or else to the first of the peers.
        beat: the peer whose figure is a bar of its own."""
        problem.allocate(seed=len(self.rows))
        calls = {"ours": ours(self, problem)}
        notes = {}
        for peer, make in peers.items():
            call, why = self.try_candidate(make)
            if call:
                calls[peer] = call
            else:
                notes[peer] = why
        times = self.timer.measure(calls)
        problem.out.fill_(math.nan)
        calls["ours"]()
        torch.cuda.synchronize()
        flops = problem.flops()
        rates = {peer: flops / t["ms"] / 1e9 for peer, t in times.items()}
        row = {"name": name, "unit": "TFLOP/s", "rates": rates, "times": times, "notes": notes,
               "error": problem.error(problem.out), "peer_errors": self.peer_errors(problem, calls)}
        reference = baseline or next(((p, rates[p]) for p in peers if p in rates), None)
        self.finish(row, reference, bar)
        if beat and beat in rates:
            row["beat"] = {"peer": beat, "ratio": rates["ours"] / rates[beat]}
            row["met"] = row["met"] and rates["ours"] >= rates[beat]
        calls["ours"].close()
        return rates["ours"]

    @staticmethod
    def peer_errors(problem, calls):
        """A peer that computes something else is no peer: its error stands in the full table."""
        return {peer: problem.error(call()) for peer, call in calls.items() if peer != "ours"}

    def rowwise(self, spec, rows, n, bar):
        torch.manual_seed(len(self.rows))
        x = torch.randn(rows, n, dtype=torch.bfloat16, device="cuda")
        y = torch.empty_like(x)
        inputs = cases.rowwise_inputs(spec, n, torch.bfloat16)
        torch._dynamo.reset()
        compiled = torch.compile(cases.rowwise_torch, dynamic=False)
        call = self.ctx.call(spec, x=x, y=y, **inputs)
        self.infos.setdefault(spec, []).append(call.info)
        target = torch.empty_like(x)
        calls = {"ours": call, "copy": lambda: target.copy_(x), "torch": lambda: cases.rowwise_torch(spec, x, inputs)}
        notes = {}
        if not self.options.no_compile:
            made, why = self.try_candidate(lambda: lambda: compiled(spec, x, inputs))
            calls.update({"torch.compile": made} if made else {})
            notes.update({} if made else {"torch.compile": why})
        times = self.timer.measure(calls)
        y.fill_(math.nan)
        call()
        torch.cuda.synchronize()
        rates = {peer: 2 * x.nbytes / t["ms"] / 1e9 for peer, t in times.items()}
        row = {"name": f"{spec} {rows}x{n} bf16", "unit": "TB/s", "rates": rates, "times": times, "notes": notes,
               "error": cases.rowwise_error(spec, x, inputs, y)}
        self.finish(row, ("copy", rates["copy"]), bar)
        call.close()

    def finish(self, row, reference, bar):
        row["peer"] = reference[0] if reference else "none"
        row["peer_rate"] = reference[1] if reference else math.nan
        row["ratio"] = row["rates"]["ours"] / row["peer_rate"]
        row["bar"] = bar
        row["right"] = row["error"] <= ERROR_BOUND
        row["met"] = row["right"] and row["ratio"] >= bar
        self.rows.append(row)
        rates = ", ".join(f"{peer} {rate:.4g}" for peer, rate in row["rates"].items())
        notes = "".join(f"; {peer} left out: {why}" for peer, why in row["notes"].items())
        print(f"{row['name']}: {rates} {row['unit']}; error {row['error']:.2g}{notes}", flush=True)

    def guard(self, name, function):
        """Run one row if it is asked for; a row that fails is a row of the table too."""
        if self.options.only and self.options.only not in name:
            return None
        try:
            return function()
        except Exception as error:  # noqa: BLE001: the other rows still count
            text = str(error).splitlines()[0][:300] if str(error) else ""
            print(f"{name}: did not run: {type(error).__name__}: {text}", flush=True)
            self.rows.append({"name": name, "failed": text or type(error).__name__, "met": False, "right": False})
            return None
        finally:
            torch.cuda.empty_cache()


def causal_rows(bench):
    from torch.nn.attention import SDPBackend
    sizes = [(64, 32, 4, 4096), (64, 32, 2, 8192), (64, 32, 1, 16384),
             (128, 16, 4, 4096), (128, 16, 2, 8192), (128, 16, 1, 16384)]
    for d, h, b, s in sizes:
        problem = cases.Problem("causal", b, h, s, d)
        peers = {"flash": lambda p=problem: sdpa(p, SDPBackend.FLASH_ATTENTION, True),
                 "cudnn": lambda p=problem: sdpa(p, SDPBackend.CUDNN_ATTENTION, True)}
        name = f"causal D{d} B{b} H{h} S{s}"
        bench.guard(name, lambda n=name, p=problem, o=peers: bench.attention(n, p, o, 0.90))
    problem = cases.Problem("causal", 2, 32, 8192, 128, h_kv=8)
    peers = {"flash": lambda: sdpa(problem, SDPBackend.FLASH_ATTENTION, True),
             "cudnn": lambda: sdpa(problem, SDPBackend.CUDNN_ATTENTION, True)}
    bench.guard("causal GQA 32/8 D128 B2 S8192",
                lambda: bench.attention("causal GQA 32/8 D128 B2 S8192", problem, peers, 0.90))


def plain_rate(bench, variant):
    """TFLOP/s of our plain kernel at the sizes of the variants, measured once and near them in time."""
    if variant not in bench.plain:
        from torch.nn.attention import SDPBackend
        problem = cases.Problem(variant, 2, 16, 8192, 128)
        peers = {"flash": lambda: sdpa(problem, SDPBackend.FLASH_ATTENTION, variant == "causal")}
        bench.plain[variant] = bench.attention(f"plain {variant} B2 H16 S8192 D128", problem, peers, 0.90)
    return bench.plain[variant]


def variant_rows(bench):
    for variant in ("alibi", "softcap", "window", "document", "prefix_lm", "relative_bias"):
        problem = cases.Problem(variant, 2, 16, 8192, 128)
        name = f"{variant} B2 H16 S8192 D128"
        peers = {} if bench.options.no_flex else {"flex": lambda p=problem: flex(p)}
        plain = "full" if variant == "relative_bias" else "causal"
        beat = "flex" if variant in ("softcap", "relative_bias") else None
        bench.guard(name, lambda n=name, p=problem, o=peers, f=plain, t=beat: bench.attention(
            n, p, o, 0.85, baseline=(f"plain {f}", plain_rate(bench, f)), beat=t))


def rowwise_rows(bench):
    for spec in ("softmax", "rms_norm", "layer_norm"):
        bench.guard(f"rowwise {spec}", lambda s=spec: bench.rowwise(s, 16384, 8192, 0.92))


# ---- reports ---------------------------------------------------------------------------------------------

def machine():
    """What the figures depend on."""
    driver = "unknown"
    try:
        driver = subprocess.run(["nvidia-smi", "--query-gpu=driver_version,power.limit", "--format=csv,noheader"],
                                capture_output=True, text=True, timeout=20, check=False).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        pass
    return {"gpu": torch.cuda.get_device_name(0), "driver": driver, "torch": torch.__version__,
            "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(),
            "date": time.strftime("%Y-%m-%d")}


HEADER = ("case", "ours", "peer", "peer's", "ratio", "bar", "verdict")


def cells(row):
    if "failed" in row:
        return (row["name"], "-", "-", "-", "-", "-", "FAILED")
    unit = "" if row["unit"] == "TFLOP/s" else " TB/s"
    digits = 0 if row["unit"] == "TFLOP/s" else 2
    verdict = "ok" if row["met"] else ("MISS" if row["right"] else "WRONG")
    if "beat" in row:
        verdict += f" ({row['beat']['ratio']:.2f} x {row['beat']['peer']})"
    return (row["name"], f"{row['rates']['ours']:.{digits}f}{unit}", row["peer"], f"{row['peer_rate']:.{digits}f}{unit}",
            f"{row['ratio']:.2f}", f"{row['bar']:.2f}", verdict)


def text_table(rows):
    lines = [HEADER, *map(cells, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADER))]
    return "\n".join("  ".join(c.ljust(w) if i in (0, 2, 6) else c.rjust(w)
                               for i, (c, w) in enumerate(zip(line, widths))).rstrip() for line in lines)


def markdown(rows, about):
    lines = [f"Measured on {about['gpu']} ({about['driver']}), torch {about['torch']}, CUDA {about['cuda']}, "
             f"cuDNN {about['cudnn']}, {about['date']}.", "",
             "| " + " | ".join(HEADER) + " | error | all figures |", "|---" * (len(HEADER) + 2) + "|"]
    for row in rows:
        figures = ", ".join(f"{p} {r:.4g}" for p, r in row.get("rates", {}).items()) or row.get("failed", "")
        error = f"{row['error']:.1e}" if "error" in row else "-"
        lines.append("| " + " | ".join(cells(row)) + f" | {error} | {figures} |")
    return "\n".join(lines) + "\n"


def write(bench, folder):
    about = machine()
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "compare.json"), "w", encoding="utf-8") as file:
        json.dump({"machine": about, "rows": bench.rows, "kernels": bench.infos}, file, indent=1)
    with open(os.path.join(folder, "compare.md"), "w", encoding="utf-8") as file:
        file.write(markdown(bench.rows, about))


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default="build/liblathe.so", help="path of liblathe.so")
    parser.add_argument("--cache", help="kernel cache folder (default: the library's)")
    parser.add_argument("--out", help="folder for compare.json and compare.md")
    parser.add_argument("--only", help="rows whose name contains this")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter bursts")
    parser.add_argument("--no-flex", action="store_true", help="leave FlexAttention out (its compilation takes time)")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out of the row-wise rows")
    return parser.parse_args()


def main():
    options = parse()
    if not torch.cuda.is_available():
        print("skipped: torch finds no GPU")
        return 77
    torch.cuda.init()
    torch.cuda.set_device(0)
    with torch.no_grad():
        bench = Bench(options)
        rowwise_rows(bench)
        causal_rows(bench)
        variant_rows(bench)
    if options.out:
        write(bench, options.out)
    missed = sum(not row["met"] for row in bench.rows)
    print()
    print(text_table(bench.rows))
    print(f"{len(bench.rows)} rows, {len(bench.rows) - missed} at their bar, {missed} below or failed")
    return 0 if all(row["right"] for row in bench.rows) else 1


if __name__ == "__main__":
    sys.exit(main())
