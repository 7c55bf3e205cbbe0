"""errors.py: how far a tensor is from what it must be, in float64."""

import math


def relative(got, expected):
    """The L2 norm of the difference in those of what is expected; infinite where one of them is no number."""
    error = float((got.double() - expected).norm() / expected.norm())
    return error if math.isfinite(error) else math.inf
