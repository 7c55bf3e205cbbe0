#!/usr/bin/env python3
"""packed.py: attention of packed sequences beside the same tokens in a batch, and beside other templates.

    python3 tests/bench/packed.py --library build/liblathe.so [--specs causal,full] [--backward] [--peers] [--quick]

bf16, 16 heads, d 128; q, k, v and o are [tokens, h, d]. `mixed` is 12 sequences of 64 to 4096 tokens, `equal` 8 of
2048; `dense` is the latter in a batch, [b, t, h, d], `documents` the former as a mask over one row of all tokens;
`long64` is one of 16384 behind 64 of 64 tokens, `last64` in front of them. TFLOP/s are of live pairs. o is compared
with float32 attention of each sequence by itself. --peers needs FlashAttention-4 (`flash_attn.cute`). Needs the GPU
and torch (77: not here).
"""

import os
import sys

import alone
import lathe
import results
import timer

torch = alone.torch

H, D = 16, 128
ERROR_BOUND = 1e-2
ABOUT = "`packed.py`, us (TFLOP/s of live pairs)"
LENGTHS = {"mixed": [64, 4096, 130, 2048, 1000, 3000, 512, 256, 77, 2113, 1024, 2064], "equal": [2048] * 8,
           "short": [16 + 17 * i % 240 for i in range(128)], "tiny": [16] * 1024, "long": [16384], "long1": [64, 16384], "long8": [64] * 8 + [16384],
           "long64": [64] * 64 + [16384], "long128": [64] * 128 + [8192], "last64": [16384] + [64] * 64, "four": [4096] * 4}
USUAL = "mixed,equal,short,tiny"
PORTABLE = {False: "attention_fwd_sm80", True: "attention_bwd_sm80"}


def pairs(spec, n):
    return n * (n + 1) // 2 if spec == "causal" else n * n


class Problem:
    def __init__(self, lengths, backward):
        self.lengths = lengths
        generator = torch.Generator(device="cuda").manual_seed(3)
        total = sum(lengths)
        names = ("q", "k", "v", "do") if backward else ("q", "k", "v")
        self.given = {n: torch.randn(1, total, H, D, generator=generator, device="cuda").bfloat16().transpose(1, 2) for n in names}
        self.results = {n: torch.empty_like(self.given["q"]) for n in (("dq", "dk", "dv") if backward else ("o",))}
        places = [sum(lengths[:n]) for n in range(len(lengths) + 1)]
        self.cu = torch.tensor(places, dtype=torch.int32, device="cuda")

    def batch(self):
        """The same tensors as a batch, where the sequences are of one length."""
        n = len(self.lengths)

        def cut(x):
            return x.transpose(1, 2).reshape(n, -1, H, D).transpose(1, 2)
        return {name: cut(x) for name, x in {**self.given, **self.results}.items()}

    def paged(self, page):
        """Keys and values in pages in random order, NaN beside and behind those in use."""
        counts = [-(-n // page) for n in self.lengths]
        order = torch.randperm(sum(counts) + 1, device="cuda").to(torch.int32)
        table = torch.full((len(counts), max(counts)), -1, dtype=torch.int32, device="cuda")
        pools = {n: torch.full((len(order), H, page, D), float("nan"), device="cuda").bfloat16() for n in "kv"}
        for i, count in enumerate(counts):
            mine = order[sum(counts[:i]):sum(counts[:i + 1])]
            table[i, :count] = mine
            for name, pool in pools.items():
                rows = torch.full((H, count * page, D), float("nan"), device="cuda").bfloat16()
                rows[:, :self.lengths[i]] = self.given[name][0, :, int(self.cu[i]):int(self.cu[i + 1])]
                pool[mine.long()] = rows.view(H, count, page, D).transpose(0, 1)
        used = torch.tensor(self.lengths, dtype=torch.int32, device="cuda")
        return {"q": self.given["q"], "o": self.results["o"], "cu_q": self.cu, "used_kv": used, "pages": table, **pools}

    def error(self, spec):
        """Of the forward pass: the longest and the shortest sequence."""
        worst = 0.0
        for i in {self.lengths.index(max(self.lengths)), self.lengths.index(min(self.lengths))}:
            part = slice(int(self.cu[i]), int(self.cu[i + 1]))
            q, k, v = (self.given[n][:, :, part].float() for n in "qkv")
            want = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=spec == "causal")
            worst = max(worst, float((self.results["o"][:, :, part].float() - want).norm() / want.norm()))
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


def fa4(problem, spec, backward):
    """FlashAttention-4's kernels for sequences of several lengths; backward its gradients of one forward pass."""
    from flash_attn.cute.interface import flash_attn_varlen_func
    given = {n: x.transpose(1, 2)[0].detach().requires_grad_(backward) for n, x in problem.given.items()}
    q, k, v = (given[n] for n in "qkv")
    longest = max(problem.lengths)

    def attend():
        o = flash_attn_varlen_func(q, k, v, cu_seqlens_q=problem.cu, cu_seqlens_k=problem.cu, max_seqlen_q=longest,
                                   max_seqlen_k=longest, causal=spec == "causal")
        return o[0] if isinstance(o, tuple) else o
    if not backward:
        return attend
    o = attend()
    return lambda: torch.autograd.grad(o, (q, k, v), given["do"].detach(), retain_graph=True)


def row(options, contexts, spec, name, clock, cells):
    problem = Problem(LENGTHS[name], options.backward)
    more = {"cu_q": problem.cu}
    values = {**problem.given, **problem.results}
    if options.backward:
        values.update(backward_inputs(contexts["planned"], spec, problem, more))
    calls = {who: ctx.call(spec, backward=options.backward, **values, **more) for who, ctx in contexts.items()}
    flops = (10 if options.backward else 4) * sum(pairs(spec, n) for n in problem.lengths) * H * D
    right = True
    errors = {}
    for page in [] if options.backward else [int(n) for n in options.pages.split(",") if n]:
        values_here = problem.paged(page)
        calls[f"pages{page}"] = contexts.get("wished", contexts["planned"]).call(spec, **values_here)
        if page == 64:
            calls["portable64"] = contexts["portable"].call(spec, **values_here)
    for who, call in calls.items():
        if not options.backward:
            problem.results["o"].fill_(float("nan"))
        call()
        errors[who] = 0.0 if options.backward else problem.error(spec)
        right &= errors[who] < ERROR_BOUND
    if name == "equal" and not options.backward:
        calls["dense"] = contexts["planned"].call(spec, **problem.batch())
    if name == "mixed" and spec == "causal":
        which = torch.repeat_interleave(torch.arange(len(problem.lengths), device="cuda"),
                                        torch.tensor(problem.lengths, device="cuda")).to(torch.int32)[None]
        calls["documents"] = contexts["planned"].call("document", backward=options.backward, **values, doc=which)
    infos = {who: call.info.splitlines()[0] for who, call in calls.items()}
    ours = list(calls.values())
    if options.peers:
        calls["fa4"] = fa4(problem, spec, options.backward)
    for who, time in clock.measure(calls).items():
        cells[who] = f"{time['ms'] * 1e3:.0f} ({flops / time['ms'] / 1e9:.0f})"
        print(f"{spec} {name:6} {who:10} {time['ms'] * 1e3:8.1f} us {flops / time['ms'] / 1e9:6.1f} TFLOP/s"
              f"{f'  error {errors[who]:.1e}' if who in errors and not options.backward else ''}  {infos.get(who, '')[:70]}", flush=True)
    for call in ours:
        call.close()
    return right


def main():
    parser = alone.parser(__doc__)
    parser.add_argument("--specs", default="causal,full")
    parser.add_argument("--lengths", default=USUAL, help="of " + ", ".join(LENGTHS))
    parser.add_argument("--template", default="", help="another one than is planned, beside it")
    parser.add_argument("--pages", default="16,64,256", help="keys of a page, of those beside it")
    parser.add_argument("--backward", action="store_true")
    parser.add_argument("--peers", action="store_true", help="FlashAttention-4 beside them")
    options = parser.parse_args()
    alone.need_gpu()
    contexts = {"planned": context(options, ""), "portable": context(options, PORTABLE[options.backward])}
    if options.template:
        contexts["wished"] = context(options, options.template)
    clock = timer.timers(options.quick)["burst"]
    print(f"{contexts['planned'].device_name}: bf16, {H} heads, d {D}, {'backward' if options.backward else 'forward'}")
    right, table = True, {}
    for spec in options.specs.split(","):
        for name in options.lengths.split(","):
            cells = {}
            good = row(options, contexts, spec, name, clock, cells)
            right &= good
            if good:
                table[f"{spec} {name} {'backward' if options.backward else 'forward'}"] = cells
    results.write(options, "packed sequences", table, contexts["planned"].device_name, ABOUT)
    for ctx in contexts.values():
        ctx.close()
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
