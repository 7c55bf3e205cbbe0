#!/usr/bin/env python3
"""prompt.py: the forward pass of one prompt, where a launch has few tiles: the planned and other tiles, beside cuDNN.

    python3 tests/bench/prompt.py --library build/liblathe.so [--specs full,causal] [--dims 64,128] [--quick]
                                  [--tiles planned,128x128s2w8]

bf16. Graphs of ten calls are timed, so that the host's time does not count. --tiles: as `lathe tune` names them; a
dim has those of the list that serve it. TFLOP/s are of live pairs; o is compared with float32 attention. Needs the
GPU and torch (77: not here).
"""

import os
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import alone
import lathe
import results

torch = alone.torch

CALLS = 10
ERROR_BOUND = 1e-2
ABOUT = "`prompt.py`, us (times the speed of cuDNN)"
SHAPES = "1x16x256,1x16x512,1x16x1024,1x16x2048,1x16x4096,1x32x1024,2x8x512"  # batches, heads, tokens


class Problem:
    def __init__(self, spec, b, h, s, d):
        self.spec, self.s, self.shape = spec, s, (b, h, s, d)
        generator = torch.Generator(device="cuda").manual_seed(3)
        made = [torch.randn(b, s, h, d, generator=generator, device="cuda").bfloat16().transpose(1, 2) for _ in "qkv"]
        self.given = dict(zip("qkv", made))
        self.o = torch.empty_like(made[0])

    def flops(self):
        b, h, s, d = self.shape
        return 4 * b * h * d * (s * (s + 1) // 2 if self.spec == "causal" else s * s)

    def attend(self, dtype=torch.bfloat16):
        q, k, v = (self.given[n].to(dtype) for n in "qkv")
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.spec == "causal")

    def error(self):
        want = self.attend(torch.float32)
        return float((self.o.float() - want).norm() / want.norm())


def context(options, tile):
    """The tile is read from the environment when a context is made."""
    os.environ.pop("LATHE_TILE", None)
    if tile != "planned":
        os.environ["LATHE_TILE"] = tile
    made = lathe.Context(options.library, device=0, cache_dir=options.cache)
    os.environ.pop("LATHE_TILE", None)
    return made


def graph_of(call):
    def run():
        for _ in range(CALLS):
            call()
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        if isinstance(call, lathe.Call):
            call.stream = torch.cuda.current_stream().cuda_stream
        run()
    return graph


def cudnn(problem):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def call():
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            problem.attend()
    return call


def measure(graphs, quick):
    """us of a call: the median of bursts, taken in turns."""
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    taken = {who: [] for who in graphs}
    for turn in range(5 if quick else 9):
        names = list(graphs)
        for who in names[turn % len(names):] + names[:turn % len(names)]:
            time.sleep(0.01)
            graphs[who].replay()
            start.record()
            for _ in range(8):
                graphs[who].replay()
            stop.record()
            stop.synchronize()
            taken[who].append(start.elapsed_time(stop) / 8 / CALLS * 1e3)
    return {who: statistics.median(t) for who, t in taken.items()}


def make(ctx, problem):
    try:
        return ctx.call(problem.spec, **problem.given, o=problem.o)
    except lathe.Error:
        return None  # no such tile for these dims


def row(options, contexts, problem):
    calls = {tile: made for tile, ctx in contexts.items() if (made := make(ctx, problem))}
    right = True
    for tile, call in calls.items():
        problem.o.fill_(float("nan"))
        call()
        if not problem.error() < ERROR_BOUND:
            print(f"{problem.spec} {problem.shape} {tile}: WRONG, {problem.error():.1e}")
            right = False
    graphs = {tile: graph_of(call) for tile, call in calls.items()}
    graphs["cudnn"] = graph_of(cudnn(problem))
    times = measure(graphs, options.quick)
    planned = next((line[6:] for line in calls["planned"].info.splitlines() if line.startswith("tile: ")), "") if "planned" in calls else ""
    b, h, s, d = problem.shape
    print(f"{problem.spec:6} D{d} B{b} H{h} S{s}: " + ", ".join(f"{who} {us:.2f}" for who, us in times.items())
          + f"; {planned} {times['cudnn'] / times.get('planned', min(times.values())):.2f} of cuDNN", flush=True)
    for call in calls.values():
        call.close()
    cell = f"{times['planned']:.2f} ({times['cudnn'] / times['planned']:.2f})" if "planned" in times else ""
    return right, {f"B{b} H{h} S{s}": cell}, times


def shapes(options):
    return [tuple(int(n) for n in one.split("x")) for one in options.shapes.split(",")]


def compile_all(contexts, options):
    """Before anything is timed, each in a thread of its own."""
    def one(job):
        spec, d, ctx = job
        for b, h, s in shapes(options):
            call = make(ctx, Problem(spec, b, h, s, d))
            if call:
                call.close()
    jobs = [(spec, int(d), ctx) for spec in options.specs.split(",") for d in options.dims.split(",") for ctx in contexts.values()]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(one, jobs))


def main():
    parser = alone.parser(__doc__)
    parser.add_argument("--specs", default="full,causal")
    parser.add_argument("--dims", default="64,128")
    parser.add_argument("--shapes", default=SHAPES, help="batches x heads x tokens")
    parser.add_argument("--tiles", default="planned")
    options = parser.parse_args()
    alone.need_gpu()
    contexts = {tile: context(options, tile) for tile in options.tiles.split(",")}
    name = next(iter(contexts.values())).device_name
    print(f"{name}: bf16, graphs of {CALLS} calls, us a call")
    compile_all(contexts, options)
    right, table, ratios = True, {}, []
    for spec in options.specs.split(","):
        for d in options.dims.split(","):
            cells = {}
            for b, h, s in shapes(options):
                good, cell, times = row(options, contexts, Problem(spec, b, h, s, int(d)))
                right &= good
                cells.update(cell)
                if "planned" in times:
                    ratios.append(times["cudnn"] / times["planned"])
            table[f"{spec} D{d}"] = cells
    if ratios:
        print(f"planned, of cuDNN: geometric mean {statistics.geometric_mean(ratios):.3f}, least {min(ratios):.2f}, "
              f"{sum(r < 1 for r in ratios)} of {len(ratios)} behind")
    results.write(options, "one prompt", table, name, ABOUT)
    for ctx in contexts.values():
        ctx.close()
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
