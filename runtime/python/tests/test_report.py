"""python -m lathe: what a report of a fault should tell."""

import os
import subprocess
import sys

import lathe
import numpy as np


def _run(*words, **environment):
    return subprocess.run([sys.executable, "-m", "lathe", *words], capture_output=True, text=True,
                          env={**os.environ, **environment})  # fmt: skip


def test_versions_and_places(tmp_path):
    said = _run(LATHE_CACHE_DIR=str(tmp_path), LATHE_OFFLINE="1").stdout
    lines = dict(line.split(None, 1) for line in said.splitlines())
    assert lines["numpy"] == np.__version__
    assert lines["lathe"].startswith(lathe.__version__ + ", ") and "liblathe.so" in lines["lathe"]
    assert lines["cache"] == f"{tmp_path}: 0 kernels, 0 bytes"
    assert lines["settings"].startswith("offline yes")
    assert lines["driver"].startswith(("none: ", "of CUDA "))
    assert "NVRTC" in lines and "python" in lines


def test_another_command():
    said = _run("nonsense")
    assert said.returncode == 2 and "there are `report` and `translate`" in said.stderr
