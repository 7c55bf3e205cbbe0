#!/usr/bin/env python3
"""batch.py: what deterministic=batch costs: the same call as it is chosen else, and with results that do not depend on the batch.

    python3 tests/bench/batch.py --library build/liblathe.so [--only decode,backward] [--quick]

bf16; `one order` is deterministic=1, of backward passes. Times are microseconds a launch, in turns. Needs the GPU and torch (77: not
here).
"""

import sys

import alone
import lathe
import results
import timer

torch = alone.torch

ABOUT = "`batch.py`, us (times as much as without)"
KINDS = {"usual": 0, "one order": 1, "batch": 2}


def normal(*dims):
    return torch.randn(dims, device="cuda", dtype=torch.float32).bfloat16()


def heads_last(b, h, t, d):
    """[b, h, t, d], tokens ahead of heads in memory."""
    return normal(b, t, h, d).transpose(1, 2)


def attention(b, h, h_kv, q, kv, d, backward=False):
    given = {"q": heads_last(b, h, q, d), "k": heads_last(b, h_kv, kv, d), "v": heads_last(b, h_kv, kv, d)}
    if backward:
        given["do"] = heads_last(b, h, q, d)
        given |= {"d" + name: torch.empty_like(given[name]) for name in ("q", "k", "v")}
    else:
        given["o"] = torch.empty_like(given["q"])
    return "causal", backward, given


def packed(n, h, h_kv, q, kv, d, backward=False):
    spec, backward, given = attention(1, h, h_kv, n * q, n * kv, d, backward)
    for name, tokens in (("cu_q", q), ("cu_kv", kv)):
        given[name] = torch.arange(0, (n + 1) * tokens, tokens, dtype=torch.int32, device="cuda")
    return spec, backward, given


def latent(b, h, kv):
    q = heads_last(b, h, 1, 576)
    return "mla", False, {"q": q, "k": heads_last(b, 1, kv, 576), "o": torch.empty_like(q[..., :512])}


def linear(spec, b, h, t, backward=False):
    given = {name: heads_last(b, h, t, 128) for name in ("q", "k", "v")}
    given["g"] = -torch.rand(b, h, t, device="cuda") / 8
    if spec == "gated_delta":
        given["beta"] = torch.rand(b, h, t, device="cuda")
    if backward:
        given["do"] = heads_last(b, h, t, 128)
        given |= {"d" + name: torch.empty_like(given[name]) for name in ("q", "k", "v")}
    else:
        given["o"] = torch.empty_like(given["v"])
    return spec, backward, given


CASES = {
    "decode B1, 4096 keys": lambda: attention(1, 32, 8, 1, 4096, 128),
    "decode B1, 32768 keys": lambda: attention(1, 32, 8, 1, 32768, 128),
    "decode B8, 16384 keys": lambda: attention(8, 32, 8, 1, 16384, 128),
    "decode B64, 1024 keys": lambda: attention(64, 32, 8, 1, 1024, 128),
    "decode B64, 4096 keys": lambda: attention(64, 32, 8, 1, 4096, 128),
    "decode packed, 64 of 4096 keys": lambda: packed(64, 32, 8, 1, 4096, 128),
    "latent decode B1, 8192 keys": lambda: latent(1, 128, 8192),
    "latent decode B64, 4096 keys": lambda: latent(64, 128, 4096),
    "forward B1, 8192 tokens": lambda: attention(1, 32, 8, 8192, 8192, 128),
    "forward packed, 16 of 1024": lambda: packed(16, 32, 8, 1024, 1024, 128),
    "forward B1, 16384 tokens, d 64": lambda: attention(1, 32, 8, 16384, 16384, 64),
    "backward B4, 4096 tokens": lambda: attention(4, 16, 16, 4096, 4096, 128, True),
    "backward B64, 512 tokens": lambda: attention(64, 16, 16, 512, 512, 128, True),
    "backward packed, 16 of 1024": lambda: packed(16, 16, 16, 1024, 1024, 128, True),
    "simple_gla B1, 32768 tokens": lambda: linear("simple_gla", 1, 16, 32768),
    "simple_gla B8, 2048 tokens": lambda: linear("simple_gla", 8, 16, 2048),
    "gated_delta B1, 32768 tokens": lambda: linear("gated_delta", 1, 16, 32768),
    "gated_delta B8, 2048 tokens": lambda: linear("gated_delta", 8, 16, 2048),
    "gated_delta backward B4, 4096": lambda: linear("gated_delta", 4, 16, 4096, True),
}


def measure(contexts, clock, name):
    """{kind: us}, or the sentence of a refusal."""
    torch.manual_seed(3)
    spec, backward, given = CASES[name]()
    calls, refused = {}, {}
    for kind, context in contexts.items():
        if kind == "one order" and not backward:
            continue
        try:
            calls[kind] = context.call(spec, backward=backward, **given)
        except lathe.Error as why:
            refused[kind] = str(why).splitlines()[0]
    times = {kind: time["ms"] * 1e3 for kind, time in clock.measure(calls).items()}
    torch.cuda.synchronize()
    for call in calls.values():
        call.close()
    return times | refused


def main():
    parser = alone.parser(__doc__)
    parser.add_argument("--only", default="", help="words of cases, with commas")
    options = parser.parse_args()
    alone.need_gpu()
    contexts = {kind: lathe.Context(options.library, device=0, cache_dir=options.cache, deterministic=number) for kind, number in KINDS.items()}
    clock = timer.timers(options.quick)["burst"]
    words = [word for word in options.only.split(",") if word]
    rows = {}
    for name in CASES:
        if words and not any(word in name for word in words):
            continue
        found = measure(contexts, clock, name)
        usual = found["usual"]
        cells = {kind: f"{us:.1f} ({us / usual:.2f})" if isinstance(us, float) else us for kind, us in found.items()}
        rows[name] = cells
        print(f"{name:32}" + "".join(f"  {kind} {cell}" for kind, cell in cells.items()), flush=True)
        torch.cuda.empty_cache()
    results.write(options, "batch invariance", rows, torch.cuda.get_device_name(), ABOUT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
