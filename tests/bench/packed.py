#!/usr/bin/env python3
"""packed.py: attention of packed sequences beside the same tokens in a batch, and beside other templates.

    python3 tests/bench/packed.py --library build/liblathe.so [--specs causal,full] [--passes forward] [--quick]
    python3 tests/bench/packed.py --library build/liblathe.so --peers --passes forward,backward --dims 64,128

bf16, 16 heads, d 128 or --dims; q, k, v and o are [tokens, h, d]. `mixed` is 12 sequences of 64 to 4096 tokens,
`equal` 8 of 2048; `dense` is the latter in a batch, [b, t, h, d], `documents` the former as a mask over one row of all
tokens; `small` is 128 of 128, `long64` one of 16384 behind 64 of 64 tokens, `last64` in front of them. TFLOP/s are of
live pairs. Results are compared with float32 attention of each sequence by itself. --peers: FlashAttention-4 (the wheel
flash-attn-4) beside what is planned, and nothing else; RESULTS.md has our us and how many times its speed. Needs the
GPU and torch (77: not here).
"""

import os
import sys

import alone
import lathe
import peers
import results
import timer
from errors import relative

torch = alone.torch

H = 16
ERROR_BOUNDS = {"forward": 1e-2, "backward": 2e-2}
ABOUT = "`packed.py`, us (TFLOP/s)"
ELSEWHERE = "documents or dense"  # a column of RESULTS.md for either: no mix has both
LENGTHS = {"mixed": [64, 4096, 130, 2048, 1000, 3000, 512, 256, 77, 2113, 1024, 2064], "equal": [2048] * 8,
           "short": [16 + 17 * i % 240 for i in range(128)], "tiny": [16] * 1024, "small": [128] * 128,
           "long": [16384], "long1": [64, 16384], "long8": [64] * 8 + [16384],
           "long64": [64] * 64 + [16384], "long128": [64] * 128 + [8192], "last64": [16384] + [64] * 64, "four": [4096] * 4}
USUAL, BESIDE_PEERS = "mixed,equal,short,tiny", "mixed,equal,small,long64"
PORTABLE = {"forward": "attention_fwd_sm80", "backward": "attention_bwd_sm80"}


def pairs(spec, n):
    return n * (n + 1) // 2 if spec == "causal" else n * n


class Problem:
    def __init__(self, lengths, d, way):
        self.lengths, self.d, self.way = lengths, d, way
        generator = torch.Generator(device="cuda").manual_seed(3)
        total = sum(lengths)
        backward = way == "backward"
        names = ("q", "k", "v", "do") if backward else ("q", "k", "v")
        drawn = {n: torch.randn(1, total, H, d, generator=generator, device="cuda") for n in names}
        self.given = {n: x.bfloat16().transpose(1, 2) for n, x in drawn.items()}
        self.results = {n: torch.empty_like(self.given["q"]) for n in (("dq", "dk", "dv") if backward else ("o",))}
        places = [sum(lengths[:n]) for n in range(len(lengths) + 1)]
        self.cu = torch.tensor(places, dtype=torch.int32, device="cuda")

    def batch(self):
        """The same tensors as a batch, where the sequences are of one length."""
        n = len(self.lengths)

        def cut(x):
            return x.transpose(1, 2).reshape(n, -1, H, self.d).transpose(1, 2)
        return {name: cut(x) for name, x in {**self.given, **self.results}.items()}

    def paged(self, page):
        """Keys and values in pages in random order, NaN beside and behind those in use."""
        counts = [-(-n // page) for n in self.lengths]
        order = torch.randperm(sum(counts) + 1, device="cuda").to(torch.int32)
        table = torch.full((len(counts), max(counts)), -1, dtype=torch.int32, device="cuda")
        pools = {n: torch.full((len(order), H, page, self.d), float("nan"), device="cuda").bfloat16() for n in "kv"}
        for i, count in enumerate(counts):
            mine = order[sum(counts[:i]):sum(counts[:i + 1])]
            table[i, :count] = mine
            for name, pool in pools.items():
                rows = torch.full((H, count * page, self.d), float("nan"), device="cuda").bfloat16()
                rows[:, :self.lengths[i]] = self.given[name][0, :, int(self.cu[i]):int(self.cu[i + 1])]
                pool[mine.long()] = rows.view(H, count, page, self.d).transpose(0, 1)
        used = torch.tensor(self.lengths, dtype=torch.int32, device="cuda")
        return {"q": self.given["q"], "o": self.results["o"], "cu_q": self.cu, "used_kv": used, "pages": table, **pools}

    def error(self, spec, results_of):
        """Of results, each [1, h, tokens, d]: the longest and the shortest sequence."""
        worst = 0.0
        for i in {self.lengths.index(max(self.lengths)), self.lengths.index(min(self.lengths))}:
            part = slice(int(self.cu[i]), int(self.cu[i + 1]))
            q, k, v = (self.given[n][:, :, part].float().requires_grad_(self.way == "backward") for n in "qkv")
            want = {"o": torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=spec == "causal")}
            if self.way == "backward":
                do = self.given["do"][:, :, part].float()
                want = dict(zip(("dq", "dk", "dv"), torch.autograd.grad(want["o"], (q, k, v), do)))
            worst = max(worst, *(relative(results_of[name][:, :, part], x.double()) for name, x in want.items()))
        return worst


def context(options, template):
    """Templates are read from the environment when a context is made."""
    os.environ.pop("LATHE_TEMPLATE", None)
    if template:
        os.environ["LATHE_TEMPLATE"] = template
    made = lathe.Context(options.library, device=0, cache_dir=options.cache)
    os.environ.pop("LATHE_TEMPLATE", None)
    return made


def backward_inputs(ctx, spec, problem, more):
    """o and the finals of the forward pass."""
    o = torch.empty_like(problem.given["q"])
    lse = torch.empty(o.shape[:3], dtype=torch.float32, device="cuda")
    ctx.call(spec, **{n: problem.given[n] for n in "qkv"}, o=o, lse=lse, **more)()
    return {"o": o, "lse": lse}


def fa4(problem, spec):
    """FlashAttention-4's kernels for sequences of several lengths; backward its gradients of one forward pass."""
    from flash_attn.cute.interface import flash_attn_varlen_func
    backward = problem.way == "backward"
    q, k, v = (problem.given[n].transpose(1, 2)[0].detach().requires_grad_(backward) for n in "qkv")
    longest = max(problem.lengths)

    def attend():
        return flash_attn_varlen_func(q, k, v, cu_seqlens_q=problem.cu, cu_seqlens_k=problem.cu, max_seqlen_q=longest,
                                      max_seqlen_k=longest, causal=spec == "causal")[0]
    if not backward:
        return lambda: [attend()]
    o, do = attend(), problem.given["do"].transpose(1, 2)[0]
    return lambda: torch.autograd.grad(o, (q, k, v), do, retain_graph=True)


def beside_peer(problem, spec, calls, errors):
    call, why = peers.attempt(lambda: fa4(problem, spec))
    if call:
        got = {name: t.detach()[None].transpose(1, 2) for name, t in zip(problem.results, call())}
        errors["fa4"] = problem.error(spec, got)
        why = None if errors["fa4"] < ERROR_BOUNDS[problem.way] else f"wrong, error {errors['fa4']:.2g}"
    if why:
        print(f"{spec} {problem.way} d {problem.d}: fa4 left out: {why}", flush=True)
    else:
        calls["fa4"] = call


def row(options, contexts, spec, name, problem, clock):
    """{who: (us, TFLOP/s)}, and whether all of it is right."""
    backward = problem.way == "backward"
    more = {"cu_q": problem.cu}
    values = {**problem.given, **problem.results}
    if backward:
        values.update(backward_inputs(contexts["planned"], spec, problem, more))
    calls = {who: ctx.call(spec, backward=backward, **values, **more) for who, ctx in contexts.items()}
    flops = (10 if backward else 4) * sum(pairs(spec, n) for n in problem.lengths) * H * problem.d
    errors = {}
    for page in [] if backward or options.peers else [int(n) for n in options.pages.split(",") if n]:
        values_here = problem.paged(page)
        calls[f"pages{page}"] = contexts.get("wished", contexts["planned"]).call(spec, **values_here)
        if page == 64:
            calls["portable64"] = contexts["portable"].call(spec, **values_here)
    for who, call in calls.items():
        for t in problem.results.values():
            t.fill_(float("nan"))
        call()
        errors[who] = problem.error(spec, problem.results)
    right = all(error < ERROR_BOUNDS[problem.way] for error in errors.values())
    if name == "equal" and not backward and not options.peers:
        calls["dense"] = contexts["planned"].call(spec, **problem.batch())
    if name == "mixed" and spec == "causal" and not options.peers:
        which = torch.repeat_interleave(torch.arange(len(problem.lengths), device="cuda"),
                                        torch.tensor(problem.lengths, device="cuda")).to(torch.int32)[None]
        calls["documents"] = contexts["planned"].call("document", backward=backward, **values, doc=which)
    infos = {who: call.info.splitlines()[0] for who, call in calls.items()}
    ours = list(calls.values())
    if options.peers:
        beside_peer(problem, spec, calls, errors)
    figures = {}
    for who, time in clock.measure(calls).items():
        figures[who] = time["ms"] * 1e3, flops / time["ms"] / 1e9
        print(f"{spec} {name:6} {problem.way} d {problem.d:3} {who:10} "
              f"{figures[who][0]:8.1f} us {figures[who][1]:6.1f} TFLOP/s"
              f"{f'  error {errors[who]:.1e}' if who in errors else ''}  {infos.get(who, '')[:70]}", flush=True)
    for call in ours:
        call.close()
    return figures, right


def put(table, options, spec, name, problem, figures):
    """A row of RESULTS.md for each spec, mix and pass; beside peers one for each spec, head dim and pass."""
    if not options.peers:
        wide = "" if problem.d == 128 else f" D{problem.d}"
        column = {who: ELSEWHERE if who in ELSEWHERE.split() else who for who in figures}
        table[f"{spec} {name}{wide} {problem.way}"] = {column[who]: f"{us:.0f} ({rate:.0f})"
                                                       for who, (us, rate) in figures.items()}
        return
    us = figures["planned"][0]
    beside = f" (fa4 {figures['fa4'][0] / us:.2f})" if "fa4" in figures else ""
    table.setdefault(f"{spec} D{problem.d} {problem.way}", {})[name] = f"{us:.0f}{beside}"


def main():
    parser = alone.parser(__doc__)
    parser.add_argument("--specs", default="causal,full")
    parser.add_argument("--lengths",
                        help=f"of {', '.join(LENGTHS)}; if not given, {USUAL}, beside peers {BESIDE_PEERS}")
    parser.add_argument("--dims", default="128", help="head dims")
    parser.add_argument("--passes", default="forward", help="forward, backward or both, with a comma")
    parser.add_argument("--template", default="", help="another one than is planned, beside it")
    parser.add_argument("--pages", default="16,64,256", help="keys of a page, of those beside it")
    parser.add_argument("--peers", action="store_true",
                        help="FlashAttention-4 beside what is planned, and nothing else")
    options = parser.parse_args()
    why = peers.missing(["fa4"] if options.peers else [])
    if why:
        alone.skip(why)
    alone.need_gpu()
    clock = timer.timers(options.quick)["burst"]
    right, table = True, {}
    for way in options.passes.split(","):
        contexts = {"planned": context(options, "")}
        if not options.peers:
            contexts["portable"] = context(options, PORTABLE[way])
        if options.template:
            contexts["wished"] = context(options, options.template)
        card = contexts["planned"].device_name
        print(f"{card}: bf16, {H} heads, {way}")
        for d in map(int, options.dims.split(",")):
            for spec in options.specs.split(","):
                for name in (options.lengths or (BESIDE_PEERS if options.peers else USUAL)).split(","):
                    problem = Problem(LENGTHS[name], d, way)
                    figures, good = row(options, contexts, spec, name, problem, clock)
                    right &= good
                    if good:
                        put(table, options, spec, name, problem, figures)
                    else:
                        print(f"{spec} {name} {way} d {d}: WRONG")
        for ctx in contexts.values():
            ctx.close()
    results.write(options, "packed sequences", table, card, ABOUT)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
