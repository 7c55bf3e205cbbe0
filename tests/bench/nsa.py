#!/usr/bin/env python3
"""nsa.py: attention over selected blocks of keys (nsa_selected), beside flash-linear-attention's nsa.

    python3 tests/bench/nsa.py --library build/liblathe.so [--lengths 8192,32768] [--peers] [--quick]

bf16, b 1, 64 query heads on 4, d 128; each token reads 16 blocks of 64 keys: its own, the first and random earlier ones. Tensors are
[b, t, h, d] in memory, as the peer has them. o and dq of some tokens, dk and dv of a block are checked against float64. Needs the GPU
and torch (77: not here); --peers needs the package fla (fla-core).
"""

import sys

import alone
import lathe
import results
import timer

torch = alone.torch

HEADS, KEY_HEADS, D, BLOCK, BLOCKS = 64, 4, 128, 64, 16
CHECKED = 48  # tokens
ERROR_BOUND = 1e-2
ABOUT = "`nsa.py --peers`, ms"


def selection(length):
    """blocks [1, t, key heads, 16] i32: the own one, the first, then random earlier ones without a repetition; -1: none."""
    n = length // BLOCK
    own = torch.arange(length, device="cuda") // BLOCK
    weight = torch.rand(length, KEY_HEADS, n, device="cuda")
    weight[:, :, 0] = 2
    weight.scatter_(2, own[:, None, None].expand(-1, KEY_HEADS, 1), 3.0)
    weight.masked_fill_(torch.arange(n, device="cuda") > own[:, None, None], -1.0)
    best = weight.topk(min(BLOCKS, n), dim=2)
    blocks = torch.full((1, length, KEY_HEADS, BLOCKS), -1, dtype=torch.int32, device="cuda")
    blocks[0, :, :, :best.indices.shape[2]] = torch.where(best.values < 0, -1, best.indices).to(torch.int32)
    return blocks


def errors(t, blocks):
    """Of o and dq, of some tokens of a head."""
    length, head = t["q"].shape[2], 17
    key_head = head * KEY_HEADS // HEADS
    rows = torch.randint(length, (CHECKED,), device="cuda")
    q, do = (t[n][0, head, rows].double() for n in ("q", "do"))
    q.requires_grad_(True)
    k, v = (t[n][0, key_head].double() for n in ("k", "v"))
    at = torch.arange(length, device="cuda")
    chosen = (blocks[0, rows, key_head].long()[:, :, None] == (at // BLOCK)[None, None]).any(1)
    s = (q @ k.T * D ** -0.5).masked_fill(~(chosen & (at[None] <= rows[:, None])), float("-inf"))
    want = torch.softmax(s, -1) @ v
    want.backward(do)
    return [float((t[n][0, head, rows].double() - x.detach()).norm() / x.detach().norm())
            for n, x in (("o", want), ("dq", q.grad))]


def key_errors(t, blocks, block):
    """Of dk and dv, of the keys of a block, from the o and lse that the forward pass left."""
    key_head, group = 1, HEADS // KEY_HEADS
    heads, keys = slice(key_head * group, (key_head + 1) * group), slice(block * BLOCK, (block + 1) * BLOCK)
    rows = (blocks[0, :, key_head] == block).any(1).nonzero()[:, 0]
    q, do, o = (t[n][0, heads][:, rows].double() for n in ("q", "do", "o"))
    k, v = (t[n][0, key_head, keys].double() for n in ("k", "v"))
    at = torch.arange(block * BLOCK, (block + 1) * BLOCK, device="cuda")
    p = torch.exp(q @ k.T * D ** -0.5 - t["lse"][0, heads][:, rows, None].double()).masked_fill(at > rows[:, None], 0.0)
    ds = p * (do @ v.T - (o * do).sum(-1, keepdim=True))
    want = torch.einsum("hrk,hrd->kd", ds, q) * D ** -0.5, torch.einsum("hrk,hrd->kd", p, do)
    return [float((t[n][0, key_head, keys].double() - x).norm() / x.norm()) for n, x in zip(("dk", "dv"), want)]


class Bench:
    def __init__(self, options):
        self.ctx = lathe.Context(options.library, device=0, cache_dir=options.cache)
        self.clock = timer.timers(options.quick)["burst"]
        self.right = True
        self.rows = {}  # of results.py
        print(f"{self.ctx.device_name}: b 1, h {HEADS} on {KEY_HEADS}, d {D}, bf16, {BLOCKS} blocks of {BLOCK}")

    def peer(self, t, blocks):
        from fla.ops.nsa.parallel import ParallelNSAFunction

        q, k, v, do = (t[n].transpose(1, 2).detach() for n in ("q", "k", "v", "do"))
        places = blocks.long()
        forward = lambda: ParallelNSAFunction.apply(q, k, v, places, BLOCKS, BLOCK, D ** -0.5, None)
        trained = [x.clone().requires_grad_(True) for x in (q, k, v)]
        o = ParallelNSAFunction.apply(*trained, places, BLOCKS, BLOCK, D ** -0.5, None)
        return {"FLA forward": forward, "FLA backward": lambda: torch.autograd.grad(o, trained, do, retain_graph=True)}

    def row(self, length, options):
        def made(heads, like=torch.randn):
            return like(1, length, heads, D, device="cuda").bfloat16().transpose(1, 2)

        t = {n: made(HEADS) for n in ("q", "do")} | {n: made(KEY_HEADS) for n in ("k", "v")}
        t |= {n: made(HEADS, torch.empty) for n in ("o", "dq")} | {n: made(KEY_HEADS, torch.empty) for n in ("dk", "dv")}
        t["lse"] = torch.empty(1, HEADS, length, device="cuda")
        blocks = selection(length)
        t["blocks"] = blocks.transpose(1, 2)
        forward = {n: t[n] for n in ("q", "k", "v", "o", "lse", "blocks")}
        calls = {"forward": self.ctx.call("nsa_selected", **forward)}
        calls["forward"]()
        calls["backward"] = self.ctx.call("nsa_selected", backward=True, **t)
        calls["backward"]()
        wrong = errors(t, blocks) + key_errors(t, blocks, length // BLOCK // 3)
        self.right &= max(wrong) < ERROR_BOUND
        if options.info:
            print("".join(call.info for call in calls.values()))
        if options.peers:
            calls |= self.peer(t, blocks)
        ms = {name: x["ms"] for name, x in self.clock.measure(calls).items()}
        if max(wrong) < ERROR_BOUND:
            self.rows[f"{length} tokens"] = {name: f"{x:.3f}" for name, x in ms.items()}
        print(f"{length} tokens: " + "; ".join(f"{name} {x:.3f} ms" for name, x in ms.items())
              + f"; errors {' '.join(f'{x:.1e}' for x in wrong)}{'' if max(wrong) < ERROR_BOUND else '  WRONG'}", flush=True)


def main():
    parser = alone.parser(__doc__)
    parser.add_argument("--lengths", default="8192,32768")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--info", action="store_true", help="templates and tiles")
    options = parser.parse_args()
    alone.need_gpu()
    bench = Bench(options)
    for length in options.lengths.split(","):
        bench.row(int(length), options)
    results.write(options, "native sparse attention", bench.rows, bench.ctx.device_name, ABOUT)
    return 0 if bench.right else 1


if __name__ == "__main__":
    sys.exit(main())
