#!/usr/bin/env python3
"""blocks.py: attention over lists of live key blocks (block_mask, block_lists) beside the plain kernel.

    python3 tests/bench/blocks.py --library build/liblathe.so [--lengths 4096,16384] [--density 0.125] [--quick]

bf16, b 1, h 16, d 128, not causal; each query block of 64 or 128 tokens sees a random share of the key blocks. Milliseconds of the
forward and backward pass, and the rate on the live part as a share of the plain kernel's: density * plain / ours. o of one head is
checked against float64. Needs the GPU and torch (77: not here).
"""

import argparse
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

try:
    import torch
except (ImportError, OSError) as missing:  # OSError: a library that torch needs
    print(f"skipped: torch cannot be imported here ({str(missing).partition(chr(10))[0]})")
    sys.exit(77)

import lathe  # noqa: E402
import timer  # noqa: E402

H, D = 16, 128
CHECKED_ROWS = 512
ERROR_BOUND = 1e-2
SPEC = """local BLOCK = {block}
return attention {{
  inputs = {{ live = tensor("i32", "b", "h", "q_blocks", "kv_blocks", {{ range = {{ 0, 2 }} }}) }},
  mask_mod = function(at, x) return eq(x.live(at.b, at.h, at.row // BLOCK, at.kv // BLOCK), 1) end,
}}
"""


def lists_of(live):
    """counts [lines] and rising blocks [lines, most] of live [b, h, q blocks, kv blocks]."""
    flat = live.flatten(0, 2)
    counts = flat.sum(1, dtype=torch.int32)
    most = int(counts.max())
    blocks = torch.argsort(flat, dim=1, descending=True, stable=True)[:, :most].to(torch.int32).contiguous()
    return counts, blocks


class Bench:
    def __init__(self, options):
        self.ctx = lathe.Context(options.library, device=0, cache_dir=options.cache)
        self.clock = timer.timers(options.quick)["burst"]
        self.density = options.density
        self.right = True
        print(f"{self.ctx.device_name}: b 1, h {H}, d {D}, bf16, {self.density} of the key blocks live")

    def calls(self, spec, tensors, more):
        q, k, v, o, lse, do, grads = tensors
        return (self.ctx.call(spec, q=q, k=k, v=v, o=o, lse=lse, **more),
                self.ctx.call(spec, backward=True, q=q, k=k, v=v, o=o, lse=lse, do=do, **grads, **more))

    def error(self, tensors, live, block):
        q, k, v, o = (x[0, 1].double() for x in tensors[:4])
        mask = live[0, 1].bool().repeat_interleave(block, 0).repeat_interleave(block, 1)[:CHECKED_ROWS]
        s = (q[:CHECKED_ROWS] @ k.T * D ** -0.5).masked_fill(~mask, float("-inf"))
        want = torch.softmax(s, -1) @ v
        return float((o[:CHECKED_ROWS] - want).norm() / want.norm())

    def row(self, length, block):
        q, k, v, do = (torch.randn(1, H, length, D, device="cuda").bfloat16() for _ in range(4))
        tensors = (q, k, v, torch.empty_like(q), torch.empty(1, H, length, device="cuda"), do,
                   {n: torch.empty_like(q) for n in ("dq", "dk", "dv")})
        n = length // block
        live = (torch.rand(1, H, n, n, device="cuda") < self.density).to(torch.int32)
        live[..., 0] = 1
        share = float(live.double().mean())
        counts, blocks = lists_of(live)
        table = torch.empty_like(live)
        lists = self.ctx.call("block_lists", counts=counts, blocks=blocks, live=table.view(-1, n))
        lists()
        assert torch.equal(table, live), "block_lists"
        path = os.path.join("/tmp", f"blocks_{block}.lua")
        with open(path, "w", encoding="utf-8") as file:
            file.write(SPEC.format(block=block))
        plain = self.calls("full", tensors, {})
        ours = self.calls(path, tensors, {"live": table})
        for call in plain + ours:
            call()
        ours[0]()
        error = self.error(tensors, live, block)
        times = self.clock.measure({"forward": ours[0], "backward": ours[1], "plain forward": plain[0],
                                    "plain backward": plain[1], "lists": lists})
        self.right &= error < ERROR_BOUND
        print(f"{length} tokens, blocks of {block}, {share:.3f} live: lists {times['lists']['ms'] * 1e3:.1f} us; " + "; ".join(
            f"{way} {times[way]['ms']:.3f} ms (plain {times['plain ' + way]['ms']:.3f}), "
            f"{share * times['plain ' + way]['ms'] / times[way]['ms']:.3f} of its rate" for way in ("forward", "backward")) +
            f"; error {error:.1e}{'' if error < ERROR_BOUND else '  WRONG'}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default="build/liblathe.so")
    parser.add_argument("--cache")
    parser.add_argument("--lengths", default="4096,16384")
    parser.add_argument("--density", type=float, default=0.125)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("skipped: no GPU")
        return 77
    bench = Bench(options)
    for length in options.lengths.split(","):
        for block in (64, 128):
            bench.row(int(length), block)
    return 0 if bench.right else 1


if __name__ == "__main__":
    sys.exit(main())
