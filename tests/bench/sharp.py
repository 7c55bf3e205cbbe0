#!/usr/bin/env python3
"""sharp.py: how exact gradients are where softmax is sharp: plain attention, bf16, scores of deviation 1, 10 and 30, against
float64 on the same data. Ours with o of 16 bits (as every training step has it) and with o left out (the backward pass then
makes it in fp32), torch's cuDNN and FlashAttention.

    tests/bench/sharp.py [--library FILE] [--causal] [--seeds N]

For each tensor: the error of the whole in L2, and the worst row's by its own norm. The second says what rounding does: all of
these take delta = sum(o do) of an o that was rounded to 16 bits, and where one weight of a row is nearly 1 its score's
gradient is w (dw - delta), a difference of two numbers that agree in all digits but their last. A row of dk that is made of such
scores alone is noise then, and small: the error of the whole hardly sees it.
"""

import argparse
import math

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import lathe
import results

ABOUT = "`sharp.py`, the worst relative L2 of dk, 1e-3"


def exact(q, k, v, do, causal):
    """dq, dk, dv in float64."""
    q, k, v, do = (t.double() for t in (q, k, v, do))
    scale = 1.0 / math.sqrt(q.shape[-1])
    s = (q @ k.transpose(-1, -2)) * scale
    if causal:
        s = s.masked_fill(torch.ones_like(s[0, 0]).triu(1).bool(), -math.inf)
    p = torch.softmax(s, -1)
    dp = do @ v.transpose(-1, -2)
    ds = p * (dp - (p * dp).sum(-1, keepdim=True)) * scale
    return ds @ k, ds.transpose(-1, -2) @ q, p.transpose(-1, -2) @ do


def torch_gradients(backend, q, k, v, do, causal):
    leaves = [t.clone().requires_grad_(True) for t in (q, k, v)]
    with sdpa_kernel(backend):
        o = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=causal)
    return torch.autograd.grad(o, leaves, do)


def our_gradients(ctx, with_o, q, k, v, do, causal):
    spec = "causal" if causal else "full"
    o = torch.empty_like(q)
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device="cuda")
    grads = {name: torch.empty_like(t) for name, t in (("dq", q), ("dk", k), ("dv", v))}
    forward = ctx.call(spec, q=q, k=k, v=v, o=o, lse=lse)
    forward()
    saved = {"o": o, "lse": lse} if with_o else {}
    backward = ctx.call(spec, backward=True, q=q, k=k, v=v, do=do, **saved, **grads)
    backward()
    torch.cuda.synchronize()
    forward.close()
    backward.close()
    return grads["dq"], grads["dk"], grads["dv"]


def errors(got, expected):
    off = got.double() - expected
    size = expected.norm(dim=-1)
    worst = (off.norm(dim=-1) / size.clamp_min(1e-30)).max()
    return float(off.norm() / expected.norm()), float(worst)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default="build/liblathe.so")
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--seeds", type=int, default=4)
    results.add_option(parser)
    options = parser.parse_args()
    rows = {}
    ctx = lathe.Context(options.library)
    kinds = {
        "ours, o given": lambda *a: our_gradients(ctx, True, *a),
        "ours, o left out": lambda *a: our_gradients(ctx, False, *a),
        "cuDNN": lambda *a: torch_gradients(SDPBackend.CUDNN_ATTENTION, *a),
        "FlashAttention": lambda *a: torch_gradients(SDPBackend.FLASH_ATTENTION, *a),
    }
    for d in (64, 128):
        for deviation in (1.0, 10.0, 30.0):
            for seed in range(options.seeds):
                torch.manual_seed(seed)
                shape = (1, 4, 512, d)
                spread = math.sqrt(deviation)
                q, k = (torch.randn(shape, device="cuda").mul(spread).bfloat16() for _ in range(2))
                v, do = (torch.randn(shape, device="cuda").bfloat16() for _ in range(2))
                expected = exact(q, k, v, do, options.causal)
                for name, gradients in kinds.items():
                    got = gradients(q, k, v, do, options.causal)
                    found = [errors(g, e) for g, e in zip(got, expected)]
                    cells = rows.setdefault(f"d {d}, deviation {deviation:.0f}", {})
                    cells[name] = f"{max(1e3 * found[1][0], float(cells.get(name, 0))):.1f}"
                    text = "  ".join(f"{t} {whole:.2e} worst row {worst:.2e}" for t, (whole, worst) in
                                     zip(("dq", "dk", "dv"), found))
                    print(f"d {d} deviation {deviation:4.0f} seed {seed} {name:16s} {text}", flush=True)

    results.write(options, "gradients of a sharp softmax", rows, torch.cuda.get_device_name(), ABOUT)


if __name__ == "__main__":
    main()
