"""Runs blocks of Python for guide.sh, each in a process that is forked from one where torch is imported already.

In: the path of a block a line. Out: a line with its exit code, 77 where it imports what is not here; what it said is
in said.txt.
"""

import importlib
import os
import re
import runpy
import sys

try:
    import torch  # noqa: F401  for all of them: seconds each time
except ImportError:
    pass


def is_here(name):
    try:
        module = importlib.import_module(name)
        return name != "jax" or hasattr(module, "shard_map")
    except ImportError:
        return False


def run(path):
    said = os.open("said.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for to, of in ((0, nothing), (1, said), (2, said)):
        os.dup2(of, to)
    with open(path) as file:
        needs = re.findall(r"^import (torch|jax|transformers)\b", file.read(), re.MULTILINE)
    if not all(is_here(name) for name in needs):
        sys.exit(77)
    sys.argv = [path]
    runpy.run_path(path, run_name="__main__")


while path := sys.stdin.readline().strip():
    child = os.fork()
    if child == 0:
        run(path)
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
