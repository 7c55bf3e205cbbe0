"""Mesh axes inside jax.shard_map: along which of them an array varies from device to device, as its type tells.

JAX follows that by types where `check_vma` is on, which is the default. Where it is off, or in a JAX that has no such
types, every array counts as varying along every axis, and its type tells nothing.
"""

from __future__ import annotations

import inspect

import jax
import jax.numpy as jnp

from .. import _library as c

_GATHERS_TO_ALIKE = "to" in inspect.signature(jax.lax.all_gather).parameters


def axes_of(array) -> frozenset:
    kind = jax.typeof(array) if hasattr(jax, "typeof") else None
    found = getattr(getattr(kind, "mat", None), "varying", None)  # its name has changed
    return frozenset(getattr(kind, "vma", ()) if found is None else found)


def varying(array, axes):
    """The array, typed as varying along these axes. Gradients of what is the same everywhere are added up for it."""
    more = tuple(a for a in axes if a not in axes_of(array))
    if not more:
        return array
    if array.dtype in (jnp.bfloat16, jnp.float16):  # shares of a gradient are added in f32
        return _cast(array.astype(jnp.float32), more).astype(array.dtype)
    return _cast(array, more)


def _cast(array, axes: tuple):
    return jax.lax.pcast(array, axes, to="varying") if hasattr(jax.lax, "pcast") else jax.lax.pvary(array, axes)


def sharded_as(array, other):
    """The array, sharded as the type of the other one says: on a mesh with axes that types tell (AxisType.Explicit)."""
    if not hasattr(jax.sharding, "reshard"):
        return array
    wanted, given = jax.typeof(other).sharding, jax.typeof(array).sharding
    explicit = wanted is not None and jax.sharding.AxisType.Explicit in (wanted.mesh.axis_types or ())
    return jax.sharding.reshard(array, wanted) if explicit and wanted != given else array


def alike(arrays, axes=()) -> list:
    """These arrays with the types that a call of several operands needs: all varying along the axes of any of them."""
    arrays = [jnp.asarray(a) for a in arrays]
    every = frozenset(axes).union(*map(axes_of, arrays))
    return [varying(a, sorted(every, key=str)) for a in arrays] if every else arrays


class Axis:
    """An axis of the mesh, or several as one, along which a call is sharded."""

    def __init__(self, option: str, names):
        self.option = option
        self.names = tuple(names) if isinstance(names, (list, tuple)) else names
        self.all = self.names if isinstance(self.names, tuple) else (names,)

    def size(self) -> int:
        try:
            return jax.lax.psum(1, self.names)
        except NameError:
            raise c.ArgumentError(
                f"{self.option}: there is no mesh axis {self.names!r} here; call it inside of jax.shard_map over a "
                "mesh that has it"
            ) from None

    def index(self):
        return jax.lax.axis_index(self.names)

    def is_checked(self) -> bool:
        return any(a in axes_of(self.index()) for a in self.all)

    def gather(self, array, axis: int = 0, *, tiled: bool = False):
        """What all devices have, the same on each, and typed so."""
        if self.is_checked() and _GATHERS_TO_ALIKE:
            return jax.lax.all_gather(array, self.names, axis=axis, tiled=tiled, to="invarying")
        return jax.lax.all_gather(array, self.names, axis=axis, tiled=tiled)

    def same(self, array):
        """An array that is the same on all devices, typed so."""
        if not self.is_checked():
            return array
        return self.sum_alike(jnp.where(self.index() == 0, array, jnp.zeros_like(array)))

    def sum_alike(self, array):
        """The sum, which is the same everywhere and typed so."""
        return jax.lax.psum(array, self.names)

    def turn(self, array, cut: int):
        """Each device's share of a dim that is cut, of all devices' arrays: stacked along a new first dim."""
        n = self.size()
        shape = array.shape
        pieces = array.reshape(*shape[:cut], n, shape[cut] // n, *shape[cut + 1 :])
        return jax.lax.all_to_all(pieces, self.names, cut, 0)

    def sum(self, array):
        return jax.lax.psum(array.astype(jnp.promote_types(array.dtype, jnp.float32)), self.names).astype(array.dtype)

    def whole_seed(self, seed):
        """The gradient of a result that is the same on all devices: where types do not tell, each has a share of it."""
        return seed if self.is_checked() else self.sum(seed)
