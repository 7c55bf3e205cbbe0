"""What is made of positions and decides something is f32 on the host device, as in kernels, each operation rounded:
held against NumPy's float32, with tensors of every dtype.
"""

import lathe
import numpy as np
import pytest
from attention import attention

F = np.float32


def floored(x):
    return np.floor(x * F(0.29))


# name: the mask of a spec, the same in NumPy for arrays of positions
MASKS = {
    "steps": ("eq(floor(f32(at.q) * 0.29), floor(f32(at.kv) * 0.29))",
              lambda q, kv: floored(F(q)) == floored(F(kv))),
    "distances": ("le(floor(f32(at.q - at.kv) * 0.29), 28.5) & ge(at.q, at.kv)",
                  lambda q, kv: (floored(F(q - kv)) <= F(28.5)) & (q >= kv)),
    "quotients": ("lt(f32(at.q) / 3.0 - f32(at.kv) / 3.0, 5.0) & ge(at.q, at.kv)",
                  lambda q, kv: (F(q) / F(3) - F(kv) / F(3) < F(5)) & (q >= kv)),
    "sums": ("ge(f32(at.q) * 0.1 + 0.7, f32(at.kv) * 0.1 + 0.7)",
             lambda q, kv: F(q) * F(0.1) + F(0.7) >= F(kv) * F(0.1) + F(0.7)),
    "products of sums": ("eq(i32((f32(at.q) + 0.3) * 0.7) % 3, i32((f32(at.kv) + 0.3) * 0.7) % 3)",
                         lambda q, kv: ((F(q) + F(0.3)) * F(0.7)).astype(int) % 3
                         == ((F(kv) + F(0.3)) * F(0.7)).astype(int) % 3),
    "roots": ("le(floor(sqrt(f32(at.q)) * 10.0), floor(sqrt(f32(at.kv)) * 10.0) + 1.0)",
              lambda q, kv: np.floor(np.sqrt(F(q)) * F(10)) <= np.floor(np.sqrt(F(kv)) * F(10)) + F(1)),
    "remainders": ("lt((f32(at.q) * 0.1) % 0.3, 0.15) | eq(at.q, at.kv)",
                   lambda q, kv: (np.mod(F(q) * F(0.1), F(0.3)) < F(0.15)) | (q == kv)),
}  # fmt: skip


@pytest.mark.parametrize("name", MASKS)
def test_masks_are_float32_of_numpy(name, rng):
    text, formula = MASKS[name]
    op = lathe.compile(f"return attention {{ mask_mod = function(at) return {text} end }}")
    mask = lambda q, kv: np.broadcast_to(formula(np.broadcast_to(q, (n, n)), np.broadcast_to(kv, (n, n))), (n, n))
    n = 400
    q, k, v = (rng.standard_normal((1, 1, n, 4)) for _ in range(3))
    wanted, _ = attention(q, k, v, mask)
    np.testing.assert_allclose(op(q, k, v), wanted, rtol=1e-9, atol=1e-9)
    half = [a.astype(np.float16) for a in (q, k, v)]
    np.testing.assert_allclose(op(*half), attention(*half, mask)[0], rtol=2e-3, atol=2e-3)
    dv = op.backward(q, k, v, do=np.ones_like(q), dv=True)
    scores = np.where(mask(np.arange(n)[:, None], np.arange(n)), q[0, 0] @ k[0, 0].T / 2, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    np.testing.assert_allclose(dv[0, 0], weights.T @ np.ones((n, 4)), rtol=1e-9, atol=1e-9)


def test_doubles_would_decide_otherwise():
    """Or else these masks show nothing."""
    q, kv = np.arange(400)[:, None], np.arange(400)
    assert (floored(F(q)) != np.floor(q * 0.29)).any()
    assert ((F(q) / F(3) - F(kv) / F(3) < F(5)) != (q / 3 - kv / 3 < 5)).any()
    assert ((np.mod(F(q) * F(0.1), F(0.3)) < F(0.15)) != (np.mod(q * 0.1, 0.3) < 0.15)).any()
