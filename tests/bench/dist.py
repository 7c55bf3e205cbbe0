#!/usr/bin/env python3
"""dist.py: schemes of lathe_dist.h over GPUs of one host, by NCCL, beside one GPU that has all of it.

    python3 tests/bench/dist.py --library build/liblathe.so [--only gather,ring] [--ranks 2] [--quick] [--phases]

A process a GPU. The whole problem is computed by an ordinary call as well, on every GPU at the same time; rate is its
time over that of the scheme and the number of ranks, so 1.00 is a scheme that costs nothing. Before each burst all
wait for each other, and a burst takes as long as it takes the slowest; the two take turns. Results are compared with
the ordinary call's on the same GPU. Of states a burst is one launch: of several, a rank that waits for the state of
one would be done with another. bf16, D 128. Needs two GPUs, torch and NCCL (77: not here).

--phases says of each row where its time goes: the scheme without its messages, its messages without all else, one
behind the other on one stream; what the host takes to enqueue it; and, from torch's profiler, how long kernels of each
sort run in a launch, which may be at the same time: calls of the spec, merges of parts, copies and sums, messages.
"""

import ctypes
import math
import os
import statistics
import sys
import tempfile
import time
import traceback
from typing import NamedTuple

os.environ.setdefault("NCCL_NVLS_ENABLE", "0")  # multicast through the switch needs rights that containers may lack

import alone  # noqa: E402
import lathe  # noqa: E402
import linear  # noqa: E402
import results  # noqa: E402

torch = alone.torch

ID_BYTES = 128
D = 128
DOCUMENTS = 8
DEVICE = "cuda"
ERROR_BOUND = 1e-2  # relative L2 of bf16
CONTIGUOUS, ZIGZAG, INTERLEAVED = 0, 1, 2  # lathe_shards
SCHEMES = {"keys": 1, "heads": 2, "gather": 3, "ring": 4, "states": 5}
FUNCTIONS = 7  # of a lathe_transport, with its first pointer
ABOUT = "`dist.py`, rate of all by as many times that of one (ms of all, of one)"


class Options(ctypes.Structure):  # lathe_dist_options
    _fields_ = [("scheme", ctypes.c_int), ("shards", ctypes.c_int), ("q_tokens", ctypes.c_void_p),
                ("kv_tokens", ctypes.c_void_p), ("whole_q", ctypes.c_int32), ("heads_at_once", ctypes.c_int32),
                ("most_bytes", ctypes.c_size_t), ("comm_stream", ctypes.c_void_p),
                ("second_compute_stream", ctypes.c_void_p), ("parallel_states", ctypes.c_int32),
                ("interleave", ctypes.c_int32)]


class Transport(ctypes.Structure):  # lathe_transport, which the library fills
    _fields_ = [("user", ctypes.c_void_p), ("rank", ctypes.c_int32), ("ranks", ctypes.c_int32), ("functions", ctypes.c_void_p * FUNCTIONS)]


class Row(NamedTuple):
    name: str
    spec: str
    scheme: str
    tokens: int  # of a rank
    h: int = 16
    h_kv: int = 16
    zigzag: bool = False
    interleave: int = 0  # keys of a chunk, of which the ranks have one each in turn; 0: shards are not so
    queries: int = 0  # on every rank; 0: its own tokens
    backward: bool = True
    streams: bool = False  # one for what is sent, and one for every other call
    heads_at_once: int = 0
    parallel_states: bool = False
    bars: tuple = ()


def interleaved_rows():
    """Decoding over caches of chunks in turn; "keys decode", and its like of 4 queries, have whole shards."""
    decode = {"spec": "causal", "scheme": "keys", "tokens": 65536, "h": 32, "h_kv": 8, "backward": False,
              "bars": (0.90,)}
    made = [Row("keys decode, 4 queries", queries=4, **decode)]
    for queries, said in ((1, ""), (4, ", 4 queries")):
        made += [Row(f"keys decode, chunks of {n}{said}", queries=queries, interleave=n, **decode) for n in (1, 16, 64)]
    return made


ROWS = [
    Row("gather causal", "causal", "gather", 16384, zigzag=True, streams=True, bars=(0.92, 0.94)),
    Row("gather documents", "document", "gather", 16384, zigzag=True, streams=True, bars=(0.92, 0.94)),
    Row("heads causal", "causal", "heads", 16384, streams=True, bars=(0.92, 0.93)),
    Row("heads documents", "document", "heads", 16384, streams=True, bars=(0.92, 0.93)),
    Row("ring causal", "causal", "ring", 32768, zigzag=True, streams=True, bars=(0.90, 0.90)),
    Row("keys decode", "causal", "keys", 65536, h=32, h_kv=8, queries=1, backward=False, bars=(0.90,)),
    *interleaved_rows(),
    Row("states gated_delta", "gated_delta", "states", 32768, backward=False, bars=(0.90,)),
    Row("states kda", "kda", "states", 32768, backward=False, bars=(0.90,)),
    Row("states gated_delta, parallel", "gated_delta", "states", 32768, backward=False, parallel_states=True,
        bars=(0.90,)),
    Row("states kda, parallel", "kda", "states", 32768, backward=False, parallel_states=True, bars=(0.90,)),
    Row("states gla, parallel", "gla", "states", 32768, backward=False, parallel_states=True, bars=(0.90,)),
    Row("gather causal, all heads", "causal", "gather", 16384, zigzag=True, bars=(0.92, 0.94)),
    Row("gather causal, 4 heads", "causal", "gather", 16384, zigzag=True, streams=True, heads_at_once=4,
        bars=(0.92, 0.94)),
    Row("heads causal, one stream", "causal", "heads", 16384, bars=(0.92, 0.93)),
]


# ---- the library ---------------------------------------------------------------------------------------------------


def declare(library):
    pointer, out, error = ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(lathe._Error)
    args, integer = ctypes.POINTER(lathe._Arg), ctypes.c_int
    table = {
        "lathe_nccl_id": (integer, [pointer, error]),
        "lathe_nccl_open": (integer, [out, pointer, pointer, ctypes.c_int32, ctypes.c_int32, error]),
        "lathe_nccl_rank": (integer, [pointer, ctypes.POINTER(Transport), error]),
        "lathe_nccl_close": (None, [pointer]),
        "lathe_dist_create": (integer, [out, pointer, pointer, integer, ctypes.POINTER(Transport), ctypes.POINTER(Options), args,
                                        integer, error]),
        "lathe_dist_destroy": (None, [pointer]),
        "lathe_dist_workspace_size": (ctypes.c_size_t, [pointer]),
        "lathe_dist_info": (ctypes.c_char_p, [pointer]),
        "lathe_dist_launch": (integer, [pointer, args, integer, pointer, pointer, error]),
    }
    for name, (result, parameters) in table.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, parameters


class Scheme:
    """An object of lathe_dist.h with its arguments and workspace: calling it launches."""

    def __init__(self, world, row, backward, values, transport=None):
        self.world, self.args, self.transport = world, lathe.Arguments(values), transport or world.transport
        ctx, self.handle = world.ctx, ctypes.c_void_p()
        self.stream = torch.cuda.current_stream().cuda_stream
        # What sends is small and long: it goes first, or it waits until a kernel that fills the GPU has ended.
        self.streams = (torch.cuda.Stream(priority=-1), torch.cuda.Stream()) if row.streams else ()
        comm, second = (s.cuda_stream for s in self.streams) if row.streams else (None, None)
        shards = ZIGZAG if row.zigzag else INTERLEAVED if row.interleave else CONTIGUOUS
        options = Options(scheme=SCHEMES[row.scheme], shards=shards, whole_q=int(row.queries > 0),
                          interleave=row.interleave,
                          comm_stream=comm, second_compute_stream=second, heads_at_once=row.heads_at_once,
                          parallel_states=int(row.parallel_states))
        ctx.check(ctx.library.lathe_dist_create(ctypes.byref(self.handle), ctx.handle, ctx.spec(row.spec), int(backward),
                                                ctypes.byref(self.transport), ctypes.byref(options), self.args.array,
                                                self.args.count, ctypes.byref(ctx.error)))
        self.bytes = ctx.library.lathe_dist_workspace_size(self.handle)
        self.workspace = torch.empty(max(self.bytes, 256), dtype=torch.uint8, device=DEVICE)
        self.info = ctx.library.lathe_dist_info(self.handle).decode()

    def __call__(self):
        ctx = self.world.ctx
        ctx.check(ctx.library.lathe_dist_launch(self.handle, self.args.array, self.args.count, self.workspace.data_ptr(), self.stream,
                                                ctypes.byref(ctx.error)))

    def close(self):
        torch.cuda.synchronize()
        self.world.ctx.library.lathe_dist_destroy(self.handle)


class Messages:
    """A transport that sends nothing and keeps what it was to send, in order: calling it sends that by the real one."""

    def __init__(self, world):
        self.world, self.kept, self.keeps = world, [], False
        self.stream = torch.cuda.current_stream().cuda_stream
        many, pointer, size, integer = ctypes.POINTER(ctypes.c_size_t), ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int32
        shapes = [(pointer, many, many, pointer), (pointer, many, many, pointer, many, many),
                  (pointer, size, integer, pointer, size, integer), (pointer, pointer, many, many, ctypes.c_int)]
        types = [ctypes.CFUNCTYPE(ctypes.c_int, pointer, *shape, pointer, pointer) for shape in shapes]
        self.real = [t(f) for t, f in zip(types, world.transport.functions)]
        self.functions = [t(self.keeper(i)) for i, t in enumerate(types)]
        fail = ctypes.CFUNCTYPE(None, pointer, ctypes.c_int, ctypes.c_char_p)(lambda *_: None)
        self.functions.append(fail)
        self.transport = Transport(rank=world.rank, ranks=world.ranks)
        for i, function in enumerate(self.functions):
            self.transport.functions[i] = ctypes.cast(function, pointer)

    def keeper(self, number):
        ranks = self.world.ranks

        def copy(x):
            return (ctypes.c_size_t * ranks)(*x[:ranks]) if hasattr(x, "contents") else x

        def keep(_, *args):  # ..., stream, err
            if self.keeps:
                self.kept.append((number, [copy(x) for x in args[:-2]]))
            return 0

        return keep

    def __call__(self):
        for number, args in self.kept:
            error = ctypes.byref(self.world.ctx.error)
            self.world.ctx.check(self.real[number](self.world.transport.user, *args, self.stream, error))


class World:
    """This rank: its GPU, what it sends by, and gloo for what is said on the side."""

    def __init__(self, options, rank, store):
        torch.cuda.set_device(rank)
        self.rank, self.ranks = rank, options.ranks
        torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=options.ranks)
        self.ctx = lathe.Context(options.library, device=rank, cache_dir=options.cache)
        declare(self.ctx.library)
        self.nccl, self.transport = ctypes.c_void_p(), Transport()
        library, error = self.ctx.library, ctypes.byref(self.ctx.error)
        name = ctypes.create_string_buffer(ID_BYTES)
        if rank == 0:
            self.ctx.check(library.lathe_nccl_id(name, error))
        said = [name.raw]
        torch.distributed.broadcast_object_list(said, 0)
        self.ctx.check(library.lathe_nccl_open(ctypes.byref(self.nccl), said[0], None, rank, options.ranks, error))
        self.ctx.check(library.lathe_nccl_rank(self.nccl, ctypes.byref(self.transport), error))

    def slowest(self, x):
        value = torch.tensor(float(x), dtype=torch.float64)
        torch.distributed.all_reduce(value, torch.distributed.ReduceOp.MAX)
        return float(value)

    def burst(self, call, n):
        """Milliseconds of a call, by the slowest rank."""
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        torch.distributed.barrier()
        start.record()
        for _ in range(n):
            call()
        stop.record()
        stop.synchronize()
        return self.slowest(start.elapsed_time(stop) / n)

    def measure(self, calls, rounds, burst_ms, single):
        """{name: median}; all ranks come to the same numbers of launches. single: one a burst."""
        counts, samples = {}, {name: [] for name in calls}
        for name, call in calls.items():
            self.burst(call, 2)
            counts[name] = 1 if single else max(2, min(200, math.ceil(burst_ms / self.burst(call, 2))))
        for _ in range(rounds):
            for name, call in calls.items():
                samples[name].append(self.burst(call, counts[name]))
        return {name: statistics.median(s) for name, s in samples.items()}

    def close(self):
        self.ctx.library.lathe_nccl_close(self.nccl)
        self.ctx.close()
        torch.distributed.destroy_process_group()


# ---- problems ------------------------------------------------------------------------------------------------------


def normal(*dims, seed):
    generator = torch.Generator(device=DEVICE).manual_seed(seed)
    return torch.randn(dims, generator=generator, device=DEVICE, dtype=torch.float32).bfloat16()


class Attention:
    """All of q, k, v on every GPU, and this rank's tokens of them."""

    def __init__(self, world, row):
        self.world, self.row = world, row
        self.tokens = row.tokens * world.ranks
        queries = row.queries or self.tokens
        self.whole = {"q": normal(1, row.h, queries, D, seed=1)}
        self.whole |= {n: normal(1, row.h_kv, self.tokens, D, seed=s) for n, s in (("k", 2), ("v", 3))}
        self.whole |= {"o": torch.empty_like(self.whole["q"])}
        if not row.queries:
            self.whole["lse"] = torch.empty(1, row.h, queries, device=DEVICE)
        self.more = {}
        if row.spec == "document":
            ids = torch.arange(self.tokens, device=DEVICE) * DOCUMENTS // self.tokens
            self.more["doc"] = ids.int().view(1, -1).contiguous()
        self.own = {n: self.part(n, x).clone(memory_format=torch.contiguous_format) for n, x in self.whole.items()}

    def part(self, name, x):
        if self.row.queries and name in ("q", "o"):
            return x
        rank, ranks = self.world.rank, self.world.ranks
        if self.row.interleave:
            return x.unflatten(2, (-1, ranks, self.row.interleave))[:, :, :, rank].flatten(2, 3)
        if not self.row.zigzag:
            return x.chunk(ranks, 2)[rank]
        pieces = x.chunk(2 * ranks, 2)
        return torch.cat((pieces[rank], pieces[2 * ranks - 1 - rank]), 2)

    def forward(self):
        return self.own | self.more, self.whole | self.more, ("o",)

    def backward(self):
        self.whole["do"] = normal(*self.whole["o"].shape, seed=4)
        self.own["do"] = self.part("do", self.whole["do"]).contiguous()
        for name in ("dq", "dk", "dv"):
            self.whole[name], self.own[name] = (torch.empty_like(x[name[1:]]) for x in (self.whole, self.own))
        return self.forward()[:2] + (("dq", "dk", "dv"),)

    def error(self, names):
        relative = lambda x, y: float((x.float() - y.float()).norm() / y.float().norm())
        return max(relative(self.own[n], self.part(n, self.whole[n])) for n in names)


class Linear(Attention):
    """One sequence, [1, t, h, d] in memory as models have it."""

    def __init__(self, world, row):
        self.world, self.row = world, row
        problem = linear.Problem(row.spec, (1, row.h, row.tokens * world.ranks), DEVICE)
        o, values = problem.forward_arguments()
        self.whole = values
        self.more = {}
        self.own = {n: self.part(n, x) for n, x in values.items()}
        self.own["o"] = torch.empty_like(self.own["o"].transpose(1, 2)).transpose(1, 2)


SORTS = {"calls": lambda n: True, "merges": lambda n: "_combine" in n, "copies and sums": lambda n: "dist_" in n,
         "messages": lambda n: "nccl" in n}  # the last one that is true of a kernel's name


def profiled(call, n):
    """{sort: ms of a launch}, and how many kernels there are, as torch's profiler tells; {}: it tells nothing here."""
    activity = torch.profiler.ProfilerActivity.CUDA
    with torch.profiler.profile(activities=[activity]) as profile:
        for _ in range(n):
            call()
        torch.cuda.synchronize()
    found = {}
    for event in profile.events():
        if event.device_type != torch.autograd.DeviceType.CUDA or not event.device_time_total:
            continue
        sort = [s for s, of in SORTS.items() if of(event.name)][-1]
        ms, count = found.get(sort, (0.0, 0.0))
        found[sort] = ms + event.device_time_total / 1000 / n, count + 1 / n
    return found


def say_phases(world, row, backward, own, scheme, options):
    """One line of where the time of a row goes; all ranks come here."""
    torch.cuda.synchronize()
    torch.distributed.barrier()
    began = time.perf_counter()
    for _ in range(4):
        scheme()
    host = (time.perf_counter() - began) * 250
    torch.cuda.synchronize()
    by_sort = profiled(scheme, 4)
    messages = Messages(world)
    apart = {n: torch.clone(x) for n, x in own.items()}  # its o and lse are not what the backward pass wants
    quiet = Scheme(world, row, backward, apart, messages.transport)
    messages.keeps = True
    quiet()
    messages.keeps = False
    torch.cuda.synchronize()
    times = world.measure({"quiet": quiet, "messages": messages}, options.rounds, options.burst, False)
    quiet.close()
    host = world.slowest(host)
    if world.rank == 0:
        sorts = ", ".join(f"{s} {ms:.3f} ms ({count:.0f})" for s, (ms, count) in by_sort.items()) or "no profile"
        print(f"    without messages {times['quiet']:.3f} ms, "
              f"messages alone {times['messages']:.3f} ms ({len(messages.kept)}), "
              f"host {host:.3f} ms; kernels: {sorts}", flush=True)


def run_row(world, row, options):
    """[(pass, ms of one, ms of all, error)]"""
    problem = (Linear if row.scheme == "states" else Attention)(world, row)
    made = []
    for backward in (False, True) if row.backward else (False,):
        own, whole, wanted = problem.backward() if backward else problem.forward()
        one = world.ctx.call(row.spec, backward=backward, **whole)
        all_of_them = Scheme(world, row, backward, own)
        one()
        all_of_them()
        torch.cuda.synchronize()
        error = world.slowest(problem.error(wanted))
        single = row.scheme == "states"
        times = world.measure({"one": one, "all": all_of_them}, options.rounds * (4 if single else 1), options.burst, single)
        made.append(("backward" if backward else "forward", times["one"], times["all"], error))
        if world.rank == 0 and options.verbose:
            print(all_of_them.info, end="", file=sys.stderr, flush=True)
        if options.phases:
            say_phases(world, row, backward, own, all_of_them, options)
        all_of_them.close()
        one.close()
    return made


def measure(world, options):
    rows, right = {}, True
    for row in ROWS:
        if options.only and not any(row.name.startswith(name) for name in options.only.split(",")):
            continue
        began = time.monotonic()
        for (way, one, every, error), bar in zip(run_row(world, row, options), row.bars):
            rate = one / every / world.ranks
            wrong = not error < ERROR_BOUND
            right &= not wrong
            if not wrong:
                cells = rows.setdefault(f"{row.name}, {row.tokens} tokens of each", {})
                cells[way] = f"{rate:.3f} ({every:.3f}, {one:.3f})"
            if world.rank == 0:
                print(f"{row.name:34} {way:8} {row.tokens:6} a rank: one {one:8.3f} ms, all {every:8.3f} ms, "
                      f"rate {rate:.3f} (bar {bar:.2f}) error {error:.1e}{' WRONG' if wrong else ''}", flush=True)
        torch.cuda.empty_cache()
        if world.rank == 0 and options.verbose:
            print(f"{row.name}: {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
    return rows, right


def rank_main(rank, options, store):
    world = World(options, rank, store)
    try:
        rows, right = measure(world, options)
    except BaseException:
        traceback.print_exc()
        os._exit(1)  # NCCL's kernels may wait for this rank for ever: so do not wait for them
    if rank == 0:
        results.write(options, "across GPUs", rows, f"{results.card_of(world.ctx.device_name)}x{world.ranks}", ABOUT)
    world.close()
    if not right:
        sys.exit(1)


def main():
    parser = alone.parser(__doc__)
    parser.add_argument("--only", default="", help="rows that begin so, with commas")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--phases", action="store_true", help="where the time of each row goes")
    parser.add_argument("--verbose", action="store_true", help="schemes in words, and seconds of rows, on stderr")
    options = parser.parse_args()
    options.rounds, options.burst = (5, 10.0) if options.quick else (11, 40.0)
    if torch.cuda.device_count() < options.ranks:
        alone.skip(f"{options.ranks} GPUs are not here")
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.start_processes(rank_main, (options, os.path.join(folder, "store")), options.ranks, start_method="spawn")
    return 0


if __name__ == "__main__":
    sys.exit(main())
