"""What the tests of lathe.jax share: JAX on four CPUs, and attention in plain jax.numpy."""

import os
import shutil

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
if not os.environ.get("LATHE_TEST_FULL"):  # what XLA compiles around the kernels runs once: LLVM need not optimise it
    os.environ["XLA_FLAGS"] += " --xla_backend_optimization_level=0"

import numpy as np  # noqa: E402
import pytest  # noqa: E402

jax = pytest.importorskip("jax", reason="jax is not installed")
if not shutil.which(os.environ.get("CC", "cc")):
    pytest.skip("there is no C compiler", allow_module_level=True)
import jax.numpy as jnp  # noqa: E402

SLOPES = """return attention {
  inputs = { slopes = tensor("f32", "h", { grad = true }), gain = scalar("f32", { default = 1.0, grad = true }) },
  mask_mod = causal, score_mod = function(s, at, x) return x.gain * s - x.slopes(at.h) * (at.q - at.kv) end }"""


def plain(q, k, v, slopes=None, gain=1.0):
    n = q.shape[2]
    at = jnp.arange(n)
    s = gain * (q @ k.swapaxes(-1, -2)) / q.shape[-1] ** 0.5
    if slopes is not None:
        s = s - slopes[:, None, None] * (at[:, None] - at)
    return jax.nn.softmax(jnp.where(at[:, None] >= at, s, -jnp.inf), -1) @ v


def same(given, wanted, error=2e-5):
    np.testing.assert_allclose(np.asarray(given), np.asarray(wanted), rtol=error, atol=error)


def make_qkv(rng):
    return [jnp.asarray(rng.standard_normal((2, 4, 6, 8)), jnp.float32) for _ in range(3)]
