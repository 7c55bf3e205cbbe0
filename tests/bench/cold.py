#!/usr/bin/env python3
"""cold.py: seconds from a spec to a kernel that can be launched, nothing of it in a cache, of every row-wise and element-wise spec.

    python3 tests/bench/cold.py --library build/liblathe.so --out build/bench

What is timed is lathe_kernel_get in a process that has loaded NVRTC: tracing, planning, NVRTC, writing the cache,
loading the module. Each of REPEATS times has an empty cache of its own and none of the driver's; the least and the
median. Needs the GPU and torch (77: not here): it is the host that a GPU comes with whose seconds count.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time

os.environ["CUDA_CACHE_DISABLE"] = "1"  # NVRTC 13 asks the driver for what anyone compiled before

import alone  # noqa: E402
import lathe  # noqa: E402
import maps  # noqa: E402
import results  # noqa: E402
import rows  # noqa: E402

torch = alone.torch

BAR = 0.2      # seconds
REPEATS = 3
ABOUT = f"`cold.py`, seconds, of a bar of {BAR}"
SHORT = 1024   # elements of a row, beside the length that is measured for speed


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default="build/liblathe.so", help="path of liblathe.so")
    parser.add_argument("--out", help="folder for cold.txt")
    parser.add_argument("--only", help="specs whose name contains one of these, with commas")
    results.add_option(parser)
    return parser.parse_args(arguments)


def seconds(library, make):
    """make(context) gives a call; how long that takes, each time with a cache of its own."""
    times = []
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory() as folder:
            ctx = lathe.Context(library, cache_dir=folder)
            torch.cuda.synchronize()
            start = time.perf_counter()
            call = make(ctx)
            times.append(time.perf_counter() - start)
            call.close()
            ctx.close()
    return min(times), statistics.median(times)


def row_cases():
    for op in rows.OPERATORS:
        for n in sorted({op.shape[1 if op.inner else -1], SHORT}):
            shape = (2, n, op.shape[2]) if op.inner else (2, op.shape[1], n) if len(op.shape) == 3 else (2, n)
            made = rows.Rows(op, shape, 0)
            made.prepare_backward()
            yield f"{op.spec} {n}", lambda ctx, r=made: r.forward(ctx, False)[0], lambda ctx, r=made: r.backward(ctx)[0]


def map_cases():
    for m in (*maps.activations(2, 8192), *maps.ropes(1, 64, 4, 4, 128), *maps.lrpes(1, 2, 16384, 128, (16, 32, 32)),
              *maps.embeddings(1, 64, 4096), *maps.packed_pools(2, 1000, 2048)):
        m.allocate(0)
        yield m.title, lambda ctx, m=m: maps.forward_call(ctx, m), lambda ctx, m=m: maps.backward_call(ctx, m)[0]


def rows_of(table):
    """Rows of results.py, one a spec."""
    return {name.removesuffix(f" {SHORT}"): dict(zip(("forward", "backward"), (f"{t:.2f}" for t in times))) for name, *times in table}


def main(arguments=None):
    options = parse(arguments)
    alone.need_gpu()
    wanted = options.only.split(",") if options.only else [""]
    lines, table = [], []
    for source in (row_cases, map_cases):
        for name, *passes in source():
            if not any(part in name for part in wanted):
                continue
            if not lines:
                seconds(options.library, passes[0])  # NVRTC is loaded
            found = [seconds(options.library, make) for make in passes]
            table.append((name, *(least for least, _ in found)))
            late = [which for which, (least, _) in zip(("forward", "backward"), found) if least > BAR]
            lines.append(f"{name:45s} " + "   ".join(f"{least:.3f} {median:.3f}" for least, median in found)
                         + (f"   over {BAR}: {', '.join(late)}" if late else ""))
            print(lines[-1], flush=True)
    results.write(options, "compiling from cold", rows_of(table), torch.cuda.get_device_name(), ABOUT)
    if options.out:
        os.makedirs(options.out, exist_ok=True)
        with open(os.path.join(options.out, "cold.txt"), "w", encoding="utf-8") as file:
            file.write("spec, seconds: forward least, median; backward least, median\n" + "\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
