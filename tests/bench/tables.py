"""tables.py: what the gradient of a table costs that every pair reads at a place which data tells.

    python3 tests/bench/tables.py --library build/liblathe.so

Attention with a score that reads x.table(at.h, x.kind(at.q), x.kind(at.kv)): tables of 25, 1024 and 99856 elements a head, of a size
that the spec names and of one that the launch tells, with kinds at random, in runs of 64 tokens, and all alike. For each the backward
pass with and without dtable, in microseconds, and the gradient against one in float64. Needs an NVIDIA GPU and torch; ends with 77
without them, with 1 where a gradient is wrong.
"""

import argparse
import os
import sys
import tempfile

import lathe
import results

SIDES = (5, 32, 316)
BOUND = 2e-2  # bf16, relative L2
ABOUT = "`tables.py`, us of a backward pass"


def spec_of(folder, side, named):
    dims = "'h', 'kinds', 'kinds'" if named else f"'h', {side}, {side}"
    path = os.path.join(folder, f"table_{'named' if named else side}.lua")
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"return attention {{ inputs = {{ table = tensor('f32', {dims}, {{ grad = true }}), "
                   "kind = tensor('i32', 'kv') },\n  score_mod = function(s, at, x)\n"
                   "    return s + x.table(at.h, x.kind(at.q), x.kind(at.kv))\n  end }\n")
    return path


def kinds_of(torch, how, side, n):
    if how == "random":
        return torch.randint(0, side, (n,), dtype=torch.int32, device="cuda")
    if how == "runs":
        return (torch.arange(n, device="cuda") // 64 % side).to(torch.int32)
    return torch.full((n,), side // 2, dtype=torch.int32, device="cuda")


def expected(torch, t, kind, side):
    """dtable in float64, and the sums of the absolute values of its terms: where all kinds are alike the terms cancel."""
    out = torch.zeros(2, t["q"].shape[1], side * side, dtype=torch.float64, device="cuda")
    place = (kind.long()[:, None] * side + kind.long()[None, :]).flatten()
    for b in range(t["q"].shape[0]):
        for h in range(t["q"].shape[1]):
            q, k, v, do = (t[name][b, h].double() for name in ("q", "k", "v", "do"))
            s = q @ k.T / q.shape[1] ** 0.5 + t["table"][h].double().flatten()[place].view(len(q), len(k))
            w = torch.softmax(s, -1)
            dw = do @ v.T
            terms = (w * (dw - (w * dw).sum(-1, keepdim=True))).flatten()
            out[0, h].index_add_(0, place, terms)
            out[1, h].index_add_(0, place, terms.abs())
    return out


def measure(torch, ctx, timer, spec, how, side, options):
    b, h, s, d = options.b, options.h, options.s, options.d
    torch.manual_seed(side)
    t = {name: torch.randn(b, h, s, d, dtype=torch.bfloat16, device="cuda") for name in ("q", "k", "v", "do")}
    t["table"] = torch.randn(h, side, side, device="cuda")
    kind = kinds_of(torch, how, side, s)
    o, lse = torch.empty_like(t["q"]), torch.empty(b, h, s, device="cuda")
    forward = {name: t[name] for name in ("q", "k", "v", "table")}
    ctx.call(spec, **forward, kind=kind, o=o, lse=lse)()
    grads = {"d" + name: torch.empty_like(t[name]) for name in ("q", "k", "v")}
    dtable = torch.empty_like(t["table"])
    without = ctx.call(spec, backward=True, **t, kind=kind, o=o, lse=lse, **grads)
    with_it = ctx.call(spec, backward=True, **t, kind=kind, o=o, lse=lse, **grads, dtable=dtable)
    with_it()
    truth, size = expected(torch, t, kind, side)
    error = float((dtable.double().view_as(truth) - truth).norm() / torch.maximum(truth.norm(), 0.1 * size.norm()))
    if options.quick:
        return 0.0, 0.0, error
    figures = timer.measure({"without": without, "with": with_it})
    return 1e3 * figures["without"]["ms"], 1e3 * figures["with"]["ms"], error


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default="build/liblathe.so")
    for name, size in (("b", 2), ("h", 4), ("s", 1500), ("d", 64)):
        parser.add_argument("--" + name, type=int, default=size)
    parser.add_argument("--deterministic", action="store_true")
    parser.add_argument("--quick", action="store_true", help="no timing")
    results.add_option(parser)
    options = parser.parse_args()
    try:
        import torch
    except ImportError:
        torch = None
    if torch is None or not torch.cuda.is_available():
        print("tables.py: no torch with a GPU")
        return 77
    import timer as timers
    timer = timers.Timer(5, 0.05, 10)
    right, rows = True, {}
    with tempfile.TemporaryDirectory() as folder:
        ctx = lathe.Context(options.library, deterministic=options.deterministic)
        print(f"b{options.b} h{options.h} s{options.s} d{options.d} {torch.cuda.get_device_name()}")
        for side in SIDES:
            for named in (False, True):
                for how in ("random", "runs", "alike"):
                    a, b, error = measure(torch, ctx, timer, spec_of(folder, side, named), how, side, options)
                    right &= error < BOUND
                    if error < BOUND and not options.quick:
                        rows[f"{side * side} entries, {'named' if named else 'fixed'}, {how}"] = {"without": f"{a:.0f}", "with": f"{b:.0f}"}
                    print(f"{side * side:6} {'named' if named else 'fixed'} {how:6} without {a:8.1f} us  with {b:8.1f} us  "
                          f"{b / a if a else 0:5.2f} x  error {error:.1e}{'' if error < BOUND else '  WRONG'}", flush=True)
    results.write(options, "gradients of tables", rows, torch.cuda.get_device_name(), ABOUT)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
