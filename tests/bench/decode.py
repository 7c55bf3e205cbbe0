#!/usr/bin/env python3
"""decode.py: few queries against many keys, beside a device copy and cuDNN.

    python3 tests/bench/decode.py --library build/liblathe.so [--only plain,softcap] [--shapes B1,B8] [--queries 1,4] [--quick]
                                  [--caches bf16,f8e4m3,i8]

q of bf16, k and v of `--caches`, heads 32/8, d 128, K and V [b, h_kv, kv, d]. Bytes are those of live K and V, once.
Several sets of K and V take turns, so that none is in L2 when its turn comes. Rows of lists (`used`) have half of the
buffer's keys in use, those of `started` the other half, by a mask that reads each sequence's first live key;
`pages16` and `pages64` have pages of so many keys, [pages, h_kv, page, d], in random order; `packed64` is that with
the queries of all sequences one behind the other, and `packed` has keys so, too. `scaled` has a scale of k and of v
for each token and key head. o is checked against a formula in float64. Needs the GPU and torch (77: not here).
"""

import os
import sys

import alone
import lathe
import linear
import results
import timer

torch = alone.torch

H, H_KV, D = 32, 8, 128
WINDOW = 4096
COLD_BYTES = 1 << 29  # of all sets: ten times the L2 of an H100
ERROR_BOUND = 1e-2
SHAPES = {"B1": (1, 32768), "B8": (8, 16384), "B16": (16, 8192), "B64": (64, 4096)}
SPECS = {"plain": "causal", "softcap": "softcap", "alibi": "alibi", "window": "sliding_window", "sinks": "sinks", "used": "causal",
         "pages16": "causal", "pages64": "causal", "packed64": "causal", "packed": "causal",
         "scaled": "fp8_cache", "started": os.path.join(os.path.dirname(os.path.abspath(__file__)), "left_padded.lua")}
HALF = ("used", "started")
ABOUT = "`decode.py`, us (share of the copy bandwidth)"


CACHES = {"bf16": (torch.bfloat16, 1), "f8e4m3": (torch.float8_e4m3fn, 1), "f8e5m2": (torch.float8_e5m2, 1), "i8": (torch.int8, 32)}


class Problem:
    def __init__(self, name, shape, queries, cache):
        self.name, (self.b, self.kv), self.queries = name, shape, queries
        dtype, times = CACHES[cache]
        generator = torch.Generator(device="cuda").manual_seed(5)

        def normal(*dims):
            return torch.randn(dims, generator=generator, device="cuda", dtype=torch.float32)
        self.q = normal(self.b, H, queries, D).bfloat16()
        self.q = (self.q / times).bfloat16() # scores are of the same size
        self.element = dtype.itemsize
        one = self.b * H_KV * self.kv * D * 2 * self.element
        self.sets = [tuple((normal(self.b, H_KV, self.kv, D) * times).to(dtype) for _ in range(2)) for _ in range(max(2, COLD_BYTES // one))]
        self.o = torch.empty_like(self.q)
        self.q_given = self.q
        self.more = {}
        if name == "window":
            self.more["window"] = WINDOW
        if name == "sinks":
            self.more["sink"] = normal(H)
        if name == "scaled":
            for scale in ("k_scale", "v_scale"):
                self.more[scale] = 0.5 + torch.rand(self.b, H_KV, self.kv, generator=generator, device="cuda")
        self.whole = self.sets[0]
        if name.startswith("pages") or name == "packed64":
            self.lay_pages(int(name[-2:]), generator)
        if name.startswith("packed"):
            self.pack_queries()
        if name == "packed":
            self.more["cu_kv"] = self.places(self.kv)
            self.sets = [tuple(self.pack(x) for x in pair) for pair in self.sets]
        if name == "started":
            self.more["start"] = torch.full((self.b,), self.kv // 2, dtype=torch.int32, device="cuda")
        if name == "used":
            self.more["used_kv"] = torch.full((self.b,), self.kv // 2, dtype=torch.int32, device="cuda")

    def lay_pages(self, page, generator):
        """Each set also as a pool of pages."""
        most = self.kv // page
        order = torch.randperm(self.b * most, generator=generator, device="cuda")
        self.more["pages"] = order.view(self.b, most).to(torch.int32)

        def pool(x):
            pages = x.view(self.b, H_KV, most, page, D).transpose(1, 2).reshape(self.b * most, H_KV, page, D)
            bits = pages.contiguous().view(torch.int16 if self.element == 2 else torch.uint8)
            out = torch.empty_like(bits)
            out[order] = bits
            return out.view(x.dtype)
        self.sets = [tuple(pool(x) for x in pair) for pair in self.sets]

    @staticmethod
    def pack(x):
        """[b, heads, n, d] as [1, heads, b n, d]."""
        return x.permute(1, 0, 2, 3).reshape(1, x.shape[1], -1, D).contiguous()

    def places(self, tokens):
        return torch.arange(0, (self.b + 1) * tokens, tokens, dtype=torch.int32, device="cuda")

    def pack_queries(self):
        self.more["cu_q"] = self.places(self.queries)
        self.q_given, self.o = self.pack(self.q), self.pack(self.o)

    def live_keys(self):
        return min(WINDOW, self.kv) if self.name == "window" else self.kv // 2 if self.name in HALF else self.kv

    def bytes(self):
        return self.b * H_KV * self.live_keys() * D * 2 * self.element

    def expected(self):
        """o of the last query, float64, of the first set."""
        half = self.kv // 2
        live = {"used": slice(0, half), "started": slice(half, self.kv)}.get(self.name, slice(0, self.kv))
        k, v = (x[:, :, live].float().double() for x in self.whole)
        q = self.q[:, :, -1].double().view(self.b, H_KV, H // H_KV, D)
        s = torch.einsum("bgrd,bgkd->bgrk", q, k) * D ** -0.5
        if self.name == "scaled":
            s = s * self.more["k_scale"].double().unsqueeze(2)
            v = v * self.more["v_scale"].double().unsqueeze(-1)
        n = s.shape[-1]
        distance = torch.arange(n - 1, -1, -1, device="cuda", dtype=torch.float64)
        if self.name == "softcap":
            s = 30.0 * torch.tanh(s / 30.0)
        if self.name == "alibi":
            slope = torch.exp2(-8.0 * torch.arange(1, H + 1, device="cuda", dtype=torch.float64) / H)
            s = s - slope.view(1, H_KV, H // H_KV, 1) * distance
        if self.name == "window":
            s = s.masked_fill(distance >= WINDOW, float("-inf"))
        top = s.amax(-1, keepdim=True)
        w = torch.exp(s - top)
        total = w.sum(-1, keepdim=True)
        if self.name == "sinks":
            total = total + torch.exp(self.more["sink"].double().view(1, H_KV, H // H_KV, 1) - top)
        return torch.einsum("bgrk,bgkd->bgrd", w / total, v).reshape(self.b, H, D)

    def error(self):
        want = self.expected()
        o = self.o if self.o.shape[0] == self.b else self.o.view(H, self.b, self.queries, D).permute(1, 0, 2, 3)
        return float((o[:, :, -1].double() - want).norm() / want.norm())


def in_turn(calls):
    state = {"at": 0}

    def call():
        calls[state["at"]]()
        state["at"] = (state["at"] + 1) % len(calls)
    return call


def cudnn(problem):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def one(k, v):
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return torch.nn.functional.scaled_dot_product_attention(problem.q, k, v, enable_gqa=True)
    one(*problem.sets[0])
    return in_turn([lambda k=k, v=v: one(k, v) for k, v in problem.sets])


class Bench:
    def __init__(self, options):
        self.ctx = lathe.Context(options.library, device=0, cache_dir=options.cache)
        self.clock = timer.timers(options.quick)["burst"]
        self.copy = linear.copy_rate(self.clock)
        self.right = True
        self.rows = {}  # of results.py
        print(f"{self.ctx.device_name}: copy {self.copy / 1e12:.2f} TB/s; bf16, heads {H}/{H_KV}, d {D}")

    def row(self, name, shape, queries, cache):
        problem = Problem(name, SHAPES[shape], queries, cache)
        calls = [self.ctx.call(SPECS[name], q=problem.q_given, k=k, v=v, o=problem.o, **problem.more) for k, v in problem.sets]
        calls[0]()
        torch.cuda.synchronize()
        error = problem.error()
        runs = {"lathe": in_turn(calls)}
        note = ""
        if name == "plain" and cache == "bf16":
            try:
                runs["cudnn"] = cudnn(problem)
            except RuntimeError as refused:
                note = f"  cuDNN: {str(refused).partition(chr(10))[0][:60]}"
        graph = torch.cuda.CUDAGraph()
        usual = calls[0].stream
        with torch.cuda.graph(graph):
            for call in calls:
                call.stream = torch.cuda.current_stream().cuda_stream
                call()
        for call in calls: # else launches go past the timer, and run on when their tensors are freed
            call.stream = usual
        runs["graph"] = graph.replay
        times = self.clock.measure(runs)
        torch.cuda.synchronize()
        wrong = not error < ERROR_BOUND
        self.right &= not wrong
        title = f"{name} {shape} kv {problem.kv} q {queries} {cache}"
        for who, time in times.items():
            ms = time["ms"] / (len(calls) if who == "graph" else 1)
            rate = problem.bytes() / ms * 1e3
            if not wrong:
                case = name if cache == "bf16" else f"{name}, cache of {cache}"
                self.keep(case, who, shape, queries, f"{ms * 1e3:.1f} ({rate / self.copy:.2f})")
            print(f"{title:36} {who:6} {ms * 1e3:8.1f} us {rate / 1e12:5.2f} TB/s  {rate / self.copy:5.3f} of copy"
                  f"{f'  error {error:.1e}' if who == 'lathe' else ''}{'  WRONG' if wrong else ''}{note if who == 'lathe' else ''}", flush=True)
        if name == "plain" and queries == 1:
            print("    " + calls[0].info.splitlines()[0])
        for call in calls:
            call.close()

    def keep(self, name, who, shape, queries, cell):
        case = name if who == "lathe" else f"{name}, {who}"
        self.rows.setdefault(case, {})[f"{shape}, {SHAPES[shape][1]} keys" + ("" if queries == 1 else f", {queries} queries")] = cell


def main():
    parser = alone.parser(__doc__)
    parser.add_argument("--only", default=",".join(SPECS))
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--queries", default="1")
    parser.add_argument("--caches", default="bf16")
    options = parser.parse_args()
    alone.need_gpu()
    bench = Bench(options)
    for name in options.only.split(","):
        for shape in options.shapes.split(","):
            for queries in options.queries.split(","):
                for cache in options.caches.split(","):
                    bench.row(name, shape, int(queries), cache)
    results.write(options, "decoding", bench.rows, bench.ctx.device_name, ABOUT)
    bench.ctx.close()
    return 0 if bench.right else 1


if __name__ == "__main__":
    sys.exit(main())
