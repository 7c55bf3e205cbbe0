"""timer.py: milliseconds per call of several candidates, measured in turns by CUDA events.

In bursts: about 30 ms of launches after a pause, so that a power-limited card has cooled. Sustained: bursts of
200 ms without a pause, after half a second of work: the card is as warm as in a training run.
"""

import math
import statistics
import time

import torch


class Timer:
    def __init__(self, rounds, pause_s, burst_ms, warm_s=0.0):
        self.rounds, self.pause_s, self.burst_ms, self.warm_s = rounds, pause_s, burst_ms, warm_s

    @staticmethod
    def burst(call, n):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(n):
            call()
        stop.record()
        stop.synchronize()
        return start.elapsed_time(stop) / n

    def warm(self, call, n):
        end = time.monotonic() + self.warm_s
        while time.monotonic() < end:
            self.burst(call, n)

    def measure(self, calls):
        """{name: callable} -> {name: {"ms", "min", "max"}}; "ms" is the median."""
        counts = {}
        for name, call in calls.items():
            self.burst(call, 2)  # compile, allocate
            counts[name] = max(3, min(2000, math.ceil(self.burst_ms / max(self.burst(call, 3), 1e-3))))
        samples = {name: [] for name in calls}
        names = list(calls)
        self.warm(calls[names[0]], counts[names[0]])
        for turn in range(self.rounds):
            for name in names[turn % len(names):] + names[:turn % len(names)]:
                time.sleep(self.pause_s)
                calls[name]()  # the clock rises and the instruction cache fills before the burst
                samples[name].append(self.burst(calls[name], counts[name]))
        return {name: {"ms": statistics.median(s), "min": min(s), "max": max(s)} for name, s in samples.items()}


def timers(quick):
    """By mode."""
    if quick:
        return {"burst": Timer(3, 0.05, 10), "sustained": Timer(3, 0.0, 50, 0.1)}
    return {"burst": Timer(9, 0.2, 30), "sustained": Timer(5, 0.0, 200, 0.5)}
