#!/usr/bin/env python3
"""blocks.py: attention over lists of live key blocks (block_mask, block_lists) beside the plain kernel.

    python3 tests/bench/blocks.py --library build/liblathe.so [--lengths 4096,16384] [--density 0.125] [--blocks 64,128] [--kernels] [--quick]

bf16, b 1, h 16, d 128, not causal; each query block of 64 or 128 tokens sees a random share of the key blocks. Milliseconds of the
forward and backward pass, and the rate on the live part as a share of the plain kernel's: density * plain / ours; "kept" is a launch
that finds the map of an earlier one in its workspace, and "map" the difference of the two. --kernels: the time of each kernel, too, as
torch.profiler has it. o and dq of one head are checked against float64. Needs the GPU and torch (77: not here).
"""

import os
import sys
import tempfile

import alone
import lathe
import masks
import results
import timer

torch = alone.torch

H, D = 16, 128
CHECKED_ROWS = 512
ERROR_BOUND = 1e-2
LAUNCHES = 5  # with a profiler
ABOUT = "`blocks.py`, share of the rate without lists"
WAYS = "forward", "backward"
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
        self.options = options
        self.density = options.density
        self.right = True
        self.rows = {}  # of results.py
        self.folder = tempfile.TemporaryDirectory()
        print(f"{self.ctx.device_name}: b 1, h {H}, d {D}, bf16, {self.density} of the key blocks live")

    def spec(self, block):
        path = os.path.join(self.folder.name, f"blocks_{block}.lua")
        if not os.path.exists(path):
            with open(path, "w", encoding="utf-8") as file:
                file.write(SPEC.format(block=block))
        return path

    def calls(self, spec, tensors, more, kept=False):
        q, k, v, o, lse, do, grads = tensors
        more = dict(more, mask_kept=0) if kept else more
        forward = dict(q=q, k=k, v=v, o=o, lse=lse, **more)
        backward = dict(q=q, k=k, v=v, o=o, lse=lse, do=do, **grads, **more)
        calls = self.ctx.call(spec, **forward), self.ctx.call(spec, backward=True, **backward)
        if kept:
            masks.keep(calls[0], list(forward))
            masks.keep(calls[1], list(backward))
        return calls

    def print_kernels(self, way, call):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            for _ in range(LAUNCHES):
                call()
            torch.cuda.synchronize()
        times = {}
        for event in profile.events():
            times.setdefault(event.name, []).append(event.device_time)
        print(f"  {way}: " + "; ".join(f"{name} {sum(t) / LAUNCHES:.1f} us" for name, t in times.items()), flush=True)

    def errors(self, tensors, live, block):
        """Of some rows of o, and of dq."""
        q, k, v, o, lse, do, grads = tensors
        q, k, v, do = (x[0, 1].double() for x in (q, k, v, do))
        q, do = q[:CHECKED_ROWS].requires_grad_(True), do[:CHECKED_ROWS]
        mask = live[0, 1].bool().repeat_interleave(block, 0).repeat_interleave(block, 1)[:CHECKED_ROWS, :k.shape[0]]
        s = (q @ k.T * D ** -0.5).masked_fill(~mask, float("-inf"))
        want = torch.softmax(s, -1) @ v
        want.backward(do)
        return [float((got[0, 1, :CHECKED_ROWS].double() - x.detach()).norm() / x.detach().norm())
                for got, x in ((o, want), (grads["dq"], q.grad))]

    def row(self, length, block):
        q, k, v, do = (torch.randn(1, H, length, D, device="cuda").bfloat16() for _ in range(4))
        tensors = (q, k, v, torch.empty_like(q), torch.empty(1, H, length, device="cuda"), do,
                   {n: torch.empty_like(q) for n in ("dq", "dk", "dv")})
        n = -(-length // block)
        live = (torch.rand(1, H, n, n, device="cuda") < self.density).to(torch.int32)
        live[..., 0] = 1
        share = float(live.double().mean())
        counts, blocks = lists_of(live)
        table = torch.empty_like(live)
        lists = self.ctx.call("block_lists", counts=counts, blocks=blocks, live=table.view(-1, n))
        lists()
        assert torch.equal(table, live), "block_lists"
        plain = self.calls("full", tensors, {})
        ours = self.calls(self.spec(block), tensors, {"live": table})
        kept = self.calls(self.spec(block), tensors, {"live": table}, kept=True)
        if self.options.info:
            print("".join(call.info for call in ours))
        for call in plain + kept + ours:
            call()
        ours[0]()
        ours[1]()
        errors = self.errors(tensors, live, block)
        times = self.clock.measure({"lists": lists, **{
            f"{kind}{way}": calls[i] for i, way in enumerate(WAYS) for kind, calls in (("", ours), ("kept ", kept), ("plain ", plain))}})
        ms = {name: t["ms"] for name, t in times.items()}
        self.right &= max(errors) < ERROR_BOUND
        print(f"{length} tokens, blocks of {block}, {share:.3f} live: lists {ms['lists'] * 1e3:.1f} us; error "
              f"{errors[0]:.1e} {errors[1]:.1e}{'' if max(errors) < ERROR_BOUND else '  WRONG'}")
        for i, way in enumerate(WAYS):
            each, once, whole = ms[way], ms["kept " + way], ms["plain " + way]
            if max(errors) < ERROR_BOUND:
                self.rows.setdefault(f"{length} tokens, blocks of {block}", {}).update(
                    {way: f"{share * whole / each:.2f}", f"{way}, kept": f"{share * whole / once:.2f}"})
            print(f"  {way}: plain {whole:.3f} ms; map each time {each:.3f} ms, {share * whole / each:.3f} of its rate; kept "
                  f"{once:.3f} ms, {share * whole / once:.3f}; map {(each - once) * 1e3:.1f} us", flush=True)
            if self.options.kernels:
                self.print_kernels(way, ours[i])


def main():
    parser = alone.parser(__doc__)
    parser.add_argument("--lengths", default="4096,16384")
    parser.add_argument("--density", type=float, default=0.125)
    parser.add_argument("--blocks", default="64,128")
    parser.add_argument("--kernels", action="store_true")
    parser.add_argument("--info", action="store_true", help="templates and tiles")
    options = parser.parse_args()
    alone.need_gpu()
    bench = Bench(options)
    for length in options.lengths.split(","):
        for block in options.blocks.split(","):
            bench.row(int(length), int(block))
    results.write(options, "lists of key blocks", bench.rows, bench.ctx.device_name, ABOUT)
    return 0 if bench.right else 1


if __name__ == "__main__":
    sys.exit(main())
