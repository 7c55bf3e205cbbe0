"""Where the package and its library are: both are found without installing, through PYTHONPATH and LATHE_LIBRARY."""

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
