"""lathe.jax: programs that outlive a process, arrays whose types tell how they are sharded, and what has no numbers."""

import pickle
import subprocess
import sys

import lathe
import numpy as np
import pytest
from jax_setup import jax, jnp, make_qkv, plain, same

import lathe.jax
import lathe.jax._launch as launch


@pytest.fixture
def qkv(rng):
    return make_qkv(rng)


# ---- another process -------------------------------------------------------------------------------------------------

WRITES = """
import pickle, sys
import jax, jax.numpy as jnp, lathe, lathe.jax
from jax.experimental import serialize_executable
attend, norm = lathe.jax.wrap("causal"), lathe.jax.wrap("rms_norm")
q = jnp.arange(384, dtype=jnp.float32).reshape(2, 2, 12, 8)
low = jax.jit(lambda q: attend(jnp.sin(q), q, q)).lower(q)
of_norm = jax.jit(norm).lower(q[0, 0], jnp.ones(8))
programs = [serialize_executable.serialize(l.compile()) for l in (low, of_norm)]
pickle.dump((low.as_text(), *programs), open(sys.argv[1], "wb"))
"""


def test_a_program_of_another_process(tmp_path):
    """It finds the call that was prepared here, and is refused where there is none."""
    serialize_executable = pytest.importorskip("jax.experimental.serialize_executable")
    path = tmp_path / "programs"
    subprocess.run([sys.executable, "-c", WRITES, str(path)], check=True)
    text, attention, norm = pickle.loads(path.read_bytes())
    attend = lathe.jax.wrap("causal")
    q = jnp.arange(384, dtype=jnp.float32).reshape(2, 2, 12, 8)
    low = jax.jit(lambda q: attend(jnp.sin(q), q, q)).lower(q)
    assert low.as_text() == text  # and so a cache of compiled programs has it
    load = lambda program: serialize_executable.deserialize_and_load(*program, execution_devices=jax.devices()[:1])
    same(load(attention)(q), plain(jnp.sin(q), q, q))
    with pytest.raises(Exception, match="compiled in another process, and its call 'rms_norm_.*' is not prepared in"):
        jax.block_until_ready(load(norm)(q[0, 0], jnp.ones(8)))


def test_a_call_of_another_backend(qkv, monkeypatch):
    """As of arrays on a CPU in a process whose default backend is a GPU."""
    write = launch._Prepared._write_record

    def on_gpu(self, *args):
        write(self, *args)
        self.record.on_gpu = 1

    monkeypatch.setattr(launch._Prepared, "_write_record", on_gpu)
    with pytest.raises(Exception, match="prepared for a GPU, as the default backend of JAX says, and runs on the CPU"):
        jax.block_until_ready(lathe.jax.wrap("causal")(*(t[:, :, :5] for t in qkv)))


# ---- types that tell of shards ---------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(jax.sharding, "reshard"), reason="this JAX has no types that tell of shards")
def test_gradients_on_an_explicit_mesh(qkv, rng):
    attend, norm = lathe.jax.wrap("causal"), lathe.jax.wrap("rms_norm")
    mesh = jax.make_mesh((2, 2), ("x", "y"), axis_types=(jax.sharding.AxisType.Explicit,) * 2)
    part = jax.sharding.PartitionSpec
    loss = lambda f: lambda *t: jnp.sin(f(*t)).sum()
    wanted = jax.grad(loss(plain), (0, 1, 2))(*qkv)
    w = jnp.asarray(rng.standard_normal(8), jnp.float32)
    of_norm = jax.grad(loss(norm), (0, 1))(qkv[0], w)
    with jax.set_mesh(mesh):
        put = lambda t, spec: jax.device_put(t, jax.sharding.NamedSharding(mesh, spec))
        sharded = [put(t, part("x", "y")) for t in qkv]
        for wrapped in (lambda f: f, jax.jit):
            for given, right in zip(wrapped(jax.grad(loss(attend), (0, 1, 2)))(*sharded), wanted):
                same(given, right, 1e-4)
                assert jax.typeof(given).sharding.spec == jax.typeof(sharded[0]).sharding.spec
            for given, right in zip(wrapped(jax.grad(loss(norm), (0, 1)))(sharded[0], put(w, part())), of_norm):
                same(given, right, 1e-4)


# ---- what has no numbers ---------------------------------------------------------------------------------------------


def test_arrays_that_are_traced_are_none_of_an_op(qkv):
    op = lathe.load("causal")
    for call in (lambda: jax.jit(op)(*qkv), lambda: jax.vmap(op)(*(t[None] for t in qkv)),
                 lambda: jax.grad(lambda q: op(q, *qkv[1:]).sum())(qkv[0])):  # fmt: skip
        with pytest.raises(lathe.ArgumentError, match="'q': an array that JAX traces .* lathe.jax.wrap.op. makes"):
            call()


def test_sizes_that_are_no_numbers_and_keys_are_refused(qkv):
    attend = lathe.jax.wrap("causal")
    (n,) = jax.export.symbolic_shape("n")
    shape = jax.ShapeDtypeStruct((2, 4, n, 8), np.float32)
    with pytest.raises(lathe.UnsupportedError, match=r"'q': expected sizes that are numbers, given \[2, 4, n, 8\]"):
        jax.export.export(jax.jit(attend))(shape, shape, shape)
    with pytest.raises(lathe.ArgumentError, match="'q': expected dtype float, given key"):
        attend(jax.random.key(0), *qkv[1:])


def test_lists_of_tensors_are_refused():
    """Whose elements would be read as addresses."""
    with pytest.raises(lathe.ArgumentError, match="'g': lion takes lists of tensors, as arrays of pointers"):
        lathe.jax.wrap("lion")


def test_what_is_no_array_is_refused(qkv):
    attend = lathe.jax.wrap("causal")
    sparse = pytest.importorskip("jax.experimental.sparse").BCOO.fromdense(qkv[1])
    for value in (sparse, jax.ShapeDtypeStruct(qkv[1].shape, np.float32), "k"):
        with pytest.raises(lathe.ArgumentError, match=f"'k': expected an array, given {type(value).__name__}"):
            attend(qkv[0], value, qkv[2])
    same(attend(*(np.asarray(t).tolist() for t in qkv)), plain(*qkv))
