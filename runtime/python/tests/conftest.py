"""Where the package and its library are: both are found without installing, through PYTHONPATH and LATHE_LIBRARY."""

import sys

import numpy as np
import pytest


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture
def qkv(rng):
    """q [2, 4, 9, 16], k and v [2, 2, 12, 16]: grouped heads, fewer queries than keys."""
    make = lambda h, n: rng.standard_normal((2, h, n, 16)).astype(np.float32)
    return make(4, 9), make(2, 12), make(2, 12)


_TORCH = ("torch", "examples", "gpu")  # how the names of files begin whose tests need it


def pytest_terminal_summary(terminalreporter):
    """What ran, by the library whose arrays were given: a test that did not run is not one that passed."""
    counts: dict[str, dict[str, int]] = {"NumPy": {}, "torch": {}, "JAX": {}}
    for verdict in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.stats.get(verdict, ()):
            file = report.nodeid.partition("::")[0].rpartition("/")[2].removeprefix("test_")
            name = "JAX" if file.startswith("jax") else "torch" if file.startswith(_TORCH) else "NumPy"
            counts[name][verdict] = counts[name].get(verdict, 0) + 1
    for name, by_verdict in counts.items():
        told = ", ".join(f"{n} {verdict}" for verdict, n in by_verdict.items()) or "none ran"
        terminalreporter.write_line(f"python tests of {name}{_version(name)}: {told}")


def _version(name: str) -> str:
    module = sys.modules.get(name.lower())
    return f" {module.__version__}" if module else ""
