"""Host time of warm calls from torch, in microseconds: what one call costs before the kernel begins.

Small tensors, so that the GPU is never what is waited for; the median of many short runs. On a machine without a GPU a
libcuda that pretends (tests/cli/fake_cuda.c) serves: --pretend LIBRARY, where CPU tensors stand for a GPU's.
"""

import argparse
import ctypes
import statistics
import time

import torch


def pretend(library: str):
    """CPU tensors go to a GPU that does nothing. torch looks for its own driver before the other one is there."""
    torch.cuda.is_available()
    torch.compile(lambda x: x + 1)(torch.ones(1))
    ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    from lathe import _kernel
    from lathe.torch import _passes

    _kernel._contexts[-1, False] = _kernel.Context("cuda:0")
    room = torch.empty(1 << 28, dtype=torch.uint8)
    aligned = room[-room.data_ptr() % 256 :]
    allocate = torch.empty_strided

    def empty(shape, strides, dtype, device):  # workspace is aligned on a GPU
        made = allocate(shape, strides, dtype=dtype, device=device)
        return aligned if dtype is torch.uint8 else made

    _passes._empty = empty


def microseconds(call, runs=200, repeat=100):
    for _ in range(runs):
        call()
    times = []
    for _ in range(runs):
        torch.cuda.synchronize() if torch.cuda.is_available() else None
        begin = time.perf_counter()
        for _ in range(repeat):
            call()
        times.append((time.perf_counter() - begin) / repeat * 1e6)
    return statistics.median(times), min(times)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pretend", metavar="LIBRARY")
    pretended = parser.parse_args().pretend
    device = "cpu" if pretended else "cuda"
    if pretended:
        pretend(pretended)
    import lathe.torch

    shape = (1, 8, 64, 64)
    q, k, v = (torch.randn(shape, device=device, dtype=torch.bfloat16) for _ in range(3))
    trained = [t.clone().requires_grad_() for t in (q, k, v)]
    turned = [t.transpose(1, 2).contiguous() for t in (q, k, v)]
    attend, turned_attend = lathe.torch.wrap("causal"), lathe.torch.wrap("causal", layout="bshd")
    norm = lathe.torch.wrap("rms_norm")
    x = torch.randn(64, 1024, device=device, dtype=torch.bfloat16)
    w = torch.ones(1024, device=device, dtype=torch.bfloat16)
    sdpa = torch.nn.functional.scaled_dot_product_attention

    def report(name, call):
        middle, least = microseconds(call)
        print(f"{name:48} {middle:7.2f}   least {least:7.2f}", flush=True)

    report("attention forward", lambda: attend(q, k, v))
    report("attention forward, [b, s, h, d]", lambda: turned_attend(*turned))
    report("attention forward, for a backward pass", lambda: attend(*trained))
    report("rms_norm forward", lambda: norm(x, w))
    report("torch's sdpa forward", lambda: sdpa(q, k, v, is_causal=True))
    report("torch's sdpa forward, for a backward pass", lambda: sdpa(*trained, is_causal=True))
    if not pretended:
        o = attend(*trained)
        seed = torch.ones_like(o)
        report("attention backward", lambda: torch.autograd.grad(o, trained, seed, retain_graph=True))
    once = torch.compile(lambda q, k, v: attend(q, k, v), fullgraph=True)
    thrice = torch.compile(lambda q, k, v: attend(attend(attend(q, k, v), k, v), k, v), fullgraph=True)
    with torch.no_grad():
        report("compiled: one attention", lambda: once(q, k, v))
        report("compiled: three of them", lambda: thrice(q, k, v))
    report("compiled: one attention, for a backward pass", lambda: once(*trained))


if __name__ == "__main__":
    main()
