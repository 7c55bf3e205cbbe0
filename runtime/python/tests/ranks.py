"""Processes that are ranks of gloo on the CPU, or of NCCL with a GPU each, for tests: each test's function runs
on all of them.

They are forked from a server that has imported torch, and serve many tests; a test that breaks them takes its own.
"""

import multiprocessing
import os
import tempfile
import traceback
from datetime import timedelta

_spawn = multiprocessing.get_context("forkserver")
_spawn.set_forkserver_preload(["torch", "torch.distributed.tensor", "lathe.torch.distributed"])


def _serve(rank, count, store, seconds, pipe, backend):
    import torch
    import torch.distributed as dist

    if backend == "nccl":
        torch.cuda.set_device(rank)
        torch.set_default_device(f"cuda:{rank}")
    dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=count,
                            timeout=timedelta(seconds=seconds))  # fmt: skip
    while True:
        job = pipe.recv()
        if job is None:
            return
        function, args = job
        try:
            pipe.send((True, function(*args)))
        except BaseException as error:
            pipe.send((False, f"{type(error).__name__}: {error}\n{traceback.format_exc()}"))


class Ranks:
    """`count` processes. run(f, *args): what f(*args) gives on each; f is a function of a module of tests."""

    def __init__(self, count, seconds=60, backend="gloo"):
        self.count = count
        self.seconds = seconds
        folder = tempfile.mkdtemp()
        self.pipes, self.processes = [], []
        for rank in range(count):
            ours, theirs = _spawn.Pipe()
            store = os.path.join(folder, "store")
            process = _spawn.Process(target=_serve, args=(rank, count, store, seconds, theirs, backend))
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)

    def outcomes(self, function, *args):
        """(True, result) or (False, error's text) of each rank."""
        for pipe in self.pipes:
            pipe.send((function, args))
        return [self._answer(rank) for rank in range(self.count)]

    def _answer(self, rank):
        try:
            if not self.pipes[rank].poll(self.seconds + 30):
                raise TimeoutError(f"rank {rank} hangs")
            return self.pipes[rank].recv()
        except EOFError:
            return False, "it has ended"

    def run(self, function, *args):
        outcomes = self.outcomes(function, *args)
        failed = [f"rank {rank}: {text}" for rank, (good, text) in enumerate(outcomes) if not good]
        assert not failed, "\n".join(failed)
        return [result for _, result in outcomes]

    def close(self):
        for pipe, process in zip(self.pipes, self.processes):
            try:
                pipe.send(None)
            except OSError:
                pass  # it has ended
        for process in self.processes:
            process.join(5)
            if process.is_alive():
                process.kill()
