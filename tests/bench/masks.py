#!/usr/bin/env python3
"""masks.py: masks whose tiles are judged by bounds or once a launch, beside the plain kernel on the same tensors.

    python3 tests/bench/masks.py --library build/liblathe.so [--only grid,diffusion,table,selected] [--quick]

Each mask in several spellings: its sizes as constants, as scalars, read from tables; "kept" is a launch that finds the map of an
earlier one in its workspace. Microseconds of forward and backward passes, and their share of the plain kernel's; live is the
share of pairs that the mask leaves. o and dq of one head are checked against float64. Needs the GPU and torch (77: not here).
"""

import os
import sys
import tempfile

import alone
import lathe
import results
import timer

torch = alone.torch

SIDE = 16  # of the grid: SIDE^3 tokens
BLOCK = 32  # of block diffusion
ERROR_BOUND = 1e-2  # bf16, relative L2
ABOUT = "`masks.py`, us"

GRID = """local function near(at, x)
  local h, w = {h}, {w}
  local z, kz = at.q // (h * w), at.kv // (h * w)
  local y, ky = at.q % (h * w) // w, at.kv % (h * w) // w
  return le(abs(z - kz), 2) & le(abs(y - ky), 3) & le(abs(at.q % w - at.kv % w), 3)
end
return attention {{ {inputs} mask_mod = near }}
"""

DIFFUSION = """local function block(at, x)
  local n, size = {n}, {size}
  local a, b = {a} // size, {b} // size
  local q, kv = ge(at.q, n), ge(at.kv, n)
  return (eq(a, b) & ((q & kv) | (~q & ~kv))) | (gt(a, b) & kv)
end
return attention {{ {inputs} mask_mod = block }}
"""
REMAINDERS = {"a": "at.q % n", "b": "at.kv % n"}
CHOICES = {"a": "where(ge(at.q, n), at.q - n, at.q)", "b": "where(ge(at.kv, n), at.kv - n, at.kv)"}

TABLE = """return attention { inputs = { on = tensor("u8", "q", "kv") },
  mask_mod = function(at, x) return ne(x.on(at.row, at.kv), 0) end }
"""
SELECTED = """return attention { inputs = { on = tensor("u8", "h", "tall", "wide") },
  mask_mod = function(at, x) return ne(x.on(at.h, at.row // 64, at.kv // 64), 0) end }
"""


def scalars(*names):
    return "inputs = { " + ", ".join(f'{n} = scalar("i32")' for n in names) + " },"


def grid_live(q, kv):
    plane = SIDE * SIDE
    return (((q // plane - kv // plane).abs() <= 2) & ((q % plane // SIDE - kv % plane // SIDE).abs() <= 3) &
            ((q % SIDE - kv % SIDE).abs() <= 3))


def diffusion_live(n):
    def live(q, kv):
        a, b = q % n // BLOCK, kv % n // BLOCK
        clean_q, clean_kv = q >= n, kv >= n
        return ((a == b) & (clean_q == clean_kv)) | ((a > b) & clean_kv)
    return live


def cases(length, heads, device):
    """(group, title, text, arguments, live(q, kv) of head 0, kept)"""
    half = length // 2
    diffusion = diffusion_live(half)
    generator = torch.Generator().manual_seed(3)
    tiles = (torch.rand(heads, length // 64, length // 64, generator=generator) < 0.1) | torch.eye(length // 64, dtype=torch.bool)
    pairs = tiles[0].repeat_interleave(64, 0).repeat_interleave(64, 1)
    on = pairs.to(torch.uint8).to(device)
    selected = tiles.to(torch.uint8).to(device)
    of_pairs = lambda q, kv: on[q.flatten()][:, kv.flatten()].bool()  # noqa: E731
    grid = {"h": SIDE, "w": SIDE}
    two = {"n": half, "size": BLOCK}
    by_scalar = {"n": "x.n", "size": "x.size", "inputs": scalars("n", "size")}
    by_constant = {"n": half, "size": BLOCK, "inputs": ""}
    return (
        ("grid", "constants", GRID.format(h=SIDE, w=SIDE, inputs=""), {}, grid_live, False),
        ("grid", "scalars", GRID.format(h="x.h", w="x.w", inputs=scalars("h", "w")), grid, grid_live, False),
        ("grid", "scalars, kept", GRID.format(h="x.h", w="x.w", inputs=scalars("h", "w")), grid, grid_live, True),
        ("diffusion", "where, constants", DIFFUSION.format(**by_constant, **CHOICES), {}, diffusion, False),
        ("diffusion", "where, scalars", DIFFUSION.format(**by_scalar, **CHOICES), two, diffusion, False),
        ("diffusion", "%, constants", DIFFUSION.format(**by_constant, **REMAINDERS), {}, diffusion, False),
        ("diffusion", "%, scalars", DIFFUSION.format(**by_scalar, **REMAINDERS), two, diffusion, False),
        ("diffusion", "%, scalars, kept", DIFFUSION.format(**by_scalar, **REMAINDERS), two, diffusion, True),
        ("table", "u8 [q, kv]", TABLE, {"on": on}, of_pairs, False),
        ("table", "u8 [q, kv], kept", TABLE, {"on": on}, of_pairs, True),
        ("selected", "blocks of 64 by head", SELECTED, {"on": selected}, of_pairs, False),
        ("selected", "blocks of 64 by head, kept", SELECTED, {"on": selected}, of_pairs, True),
    )


def keep(call, names):
    """From now on the call's map serves again."""
    call()
    call.args.keep[4 * names.index("mask_kept")].value = 1


def reference(q, k, v, do, live, scale):
    """o and dq of head 0 in float64."""
    q, k, v, do = (t[0, 0].double() for t in (q, k, v, do))
    q.requires_grad_(True)
    s = (q @ k.T) * scale
    p = torch.softmax(s.masked_fill(~live, float("-inf")), -1)
    o = torch.nan_to_num(p) @ v
    o.backward(do)
    return o.detach(), q.grad


def error_of(got, want):
    return float((got[0, 0].double() - want).norm() / want.norm())


class Bench:
    def __init__(self, options):
        self.device = "cuda" if options.device >= 0 else "cpu"
        self.ctx = lathe.Context(options.library, device=options.device, cache_dir=options.cache)
        self.clock = timer.timers(options.quick)["burst"]
        torch.manual_seed(1)
        shape = (1, options.heads, SIDE ** 3, options.dim)
        self.q, self.k, self.v, self.do = (torch.randn(shape, device=self.device, dtype=torch.bfloat16) for _ in range(4))
        self.grads = {name: torch.empty_like(self.q) for name in ("dq", "dk", "dv")}
        self.o = torch.empty_like(self.q)
        self.lse = torch.empty(shape[:3], device=self.device, dtype=torch.float32)
        self.folder = tempfile.TemporaryDirectory()
        self.specs = 0
        self.rows = {}  # of results.py

    def calls(self, name, text, inputs, kept):
        self.specs += 1  # a path is a spec: the context loads it once
        path = os.path.join(self.folder.name, f"{name}_{self.specs}.lua")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        more = dict(inputs, mask_kept=0) if kept else inputs
        forward = dict(q=self.q, k=self.k, v=self.v, o=self.o, lse=self.lse, **more)
        backward = dict(q=self.q, k=self.k, v=self.v, o=self.o, lse=self.lse, do=self.do, **self.grads, **more)
        calls = self.ctx.call(path, **forward), self.ctx.call(path, backward=True, **backward)
        if kept:
            keep(calls[0], list(forward))
            keep(calls[1], list(backward))
        return calls

    def row(self, group, title, text, inputs, live, kept, plain):
        index = torch.arange(self.q.shape[2], device=self.device)
        mask = live(index[:, None], index[None, :])
        calls = self.calls(group, text, inputs, kept)
        for call in calls:
            call()
        want = reference(self.q, self.k, self.v, self.do, mask, self.q.shape[3] ** -0.5)
        errors = error_of(self.o, want[0]), error_of(self.grads["dq"], want[1])
        times = self.clock.measure({"forward": calls[0], "backward": calls[1], "plain forward": plain[0],
                                    "plain backward": plain[1]})
        us = {name: 1e3 * t["ms"] for name, t in times.items()}
        if max(errors) < ERROR_BOUND:
            self.rows.setdefault(f"{group}, {title.removesuffix(', kept')}", {}).update(
                {"live": f"{float(mask.double().mean()):.2f}", **{f"{name}, kept" if kept and "plain" not in name else name: f"{t:.0f}"
                                                                  for name, t in us.items()}})
        print(f"{group:10} {title:28} live {float(mask.double().mean()):5.3f}  forward {us['forward']:7.1f} us "
              f"({us['forward'] / us['plain forward']:5.3f} of plain)  backward {us['backward']:7.1f} us "
              f"({us['backward'] / us['plain backward']:5.3f})  error {errors[0]:.1e} {errors[1]:.1e}"
              f"{'' if max(errors) < ERROR_BOUND else '  WRONG'}", flush=True)
        return max(errors) < ERROR_BOUND


def main():
    parser = alone.parser(__doc__)
    parser.add_argument("--only", default="", help="groups, with commas: grid, diffusion, table, selected")
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--device", type=int, default=0)
    options = parser.parse_args()
    alone.need_gpu()
    bench = Bench(options)
    plain = bench.calls("plain", "return attention {}\n", {}, False)
    print(f"{bench.ctx.device_name}: b 1, h {options.heads}, {SIDE ** 3} tokens, d {options.dim}, bf16")
    wanted = [g for g in options.only.split(",") if g]
    right = True
    for case in cases(SIDE ** 3, options.heads, bench.device):
        if not wanted or case[0] in wanted:
            right &= bench.row(*case, plain)
    results.write(options, "masks", bench.rows, bench.ctx.device_name, ABOUT)
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
