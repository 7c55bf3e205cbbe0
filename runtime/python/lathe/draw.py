"""Pictures of a spec: what each query takes from each key, by the host device.

With v the identity matrix, o is the matrix of weights itself; so a picture shows what the spec computes, and not what
somebody believes of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _library as c
from ._arrays import to_double
from ._signature import Argument


def weights(op, length: int = 64, heads: int = 4, *, keys: int | None = None, **inputs: Any) -> np.ndarray:
    """The weights [heads, length, keys] of queries and keys that say nothing: 0, so that scores are score_mod(0).
    Where all weights are 0 then, as of relu, those of equal queries and keys, whose scores are score_mod(1).

    Of linear attention: what is left of each token, by its decay, of equal queries and keys of length 1. inputs: the
    spec's own, as a call takes them, for a batch of 1; required ones that are left out are drawn at random, always the
    same.
    """
    if op.kind not in ("attention", "linear_attention"):
        raise c.ArgumentError(f"draw: {op.name} is {op.kind}; pictures are of attention and linear_attention")
    for name in ("length", "heads", "keys"):
        if name in op.forward.by_name:
            raise c.ArgumentError(f"draw: {op.name} has an input '{name}', an argument of draw; rename it")
    keys = length if keys is None else keys
    if op.kind == "linear_attention" and keys != length:
        raise c.ArgumentError("draw: linear attention has as many keys as queries")
    linear = op.kind == "linear_attention"
    w = _weights_at(op, length, heads, keys, inputs, linear)
    if not w.any() and not linear:
        w = _weights_at(op, length, heads, keys, inputs, True)
    return w


def _weights_at(op, length: int, heads: int, keys: int, inputs: dict, alike: bool) -> np.ndarray:
    """alike: queries and keys are one direction, of which scores are 1, and not 0."""
    given = _of_identity(op, length, heads, keys, alike)
    given |= {n: to_double(x) for n, x in inputs.items()}
    o = _call(op, given, max(length, keys))
    return (o if isinstance(o, np.ndarray) else o.o)[0]


def _of_identity(op, length: int, heads: int, keys: int, alike: bool) -> dict:
    """Values are the identity; where they lie in the keys, these are, which queries of 0 do not see."""
    names = op.forward.by_name
    d = 16 if "v" in names else keys
    q, k = np.zeros((1, heads, length, d)), np.zeros((1, heads, keys, d))
    identity = np.broadcast_to(np.eye(keys), (1, heads, keys, keys)).copy()
    if alike:
        q[..., 0], k[..., 0] = d**0.5, 1.0
    every = dict(q=q, k=k if "v" in names else identity, v=identity, q2=q[..., :16], k2=k[..., :16])
    return {n: x for n, x in every.items() if n in names}


_FLOATS = (
    lambda rng, shape: rng.standard_normal(shape),
    lambda rng, shape: rng.random(shape),
    lambda rng, shape: -rng.random(shape),
    lambda rng, shape: 0.75 + 0.5 * rng.random(shape),
)


def _rising(rng, shape):
    """Integers rise along the last dim, as those of documents in a batch do."""
    steps = rng.random(shape) < 4 / max(shape[-1] if shape else 1, 1)
    if steps.ndim:
        steps[..., 0] = False
    return np.minimum(np.cumsum(steps, -1), 3).astype(np.int32)


_INTEGERS = (
    _rising,
    lambda rng, shape: (rng.random(shape) < 0.5).astype(np.int32),
    lambda rng, shape: np.zeros(shape, np.int32),
)


def _call(op, given: dict, own: int, also: tuple = ()) -> Any:
    """With numbers drawn for what is missing. What these may be the library knows, as that decays are at most 0: what
    it refuses is drawn anew, floats between 0 and 1, between -1 and 0, about 1, integers as marks, then as 0. own: the
    size of dims that nothing else says, as of blocks: a position and its parts are in it. also: optional inputs that
    are wanted.
    """
    wanted = (a for a in op.forward.arguments if a.role != c.RESULT and (not a.optional or a.name in also))
    missing = [a for a in wanted if a.name not in given]
    tried = {a.name: 0 for a in missing}
    while True:
        rng = np.random.default_rng(1)
        drawn = {a.name: _drawn(op, a, given, rng, tried[a.name], own) for a in missing}
        try:
            return op(**given, **drawn)
        except c.ArgumentError as error:
            named = [n for n in tried if f"'{n}'" in str(error)] or list(tried)
            if not named or any(tried[n] + 1 == len(_ways(op, n)) for n in named):
                raise
            for name in named:
                tried[name] += 1


def _drawn(op, argument: Argument, given: dict, rng, tried: int, own: int) -> Any:
    if argument.role == c.SCALAR:
        return 1 if argument.dtype == c.I32 else 0.5
    sizes, _ = op.forward.sizes({n: x.shape for n, x in given.items() if n in ("q", "k", "v")})
    sizes |= {d.name: own for d in argument.dims if d.name and d.name not in sizes}
    shape = tuple(d.value(sizes) for d in argument.dims)
    if argument.dtype == c.U8:
        return (rng.random(shape) < 7 / 8).astype(np.uint8)
    return _ways(op, argument.name)[tried](rng, shape)


def _ways(op, name: str) -> tuple:
    return _INTEGERS if op.forward.by_name[name].dtype == c.I32 else _FLOATS


def draw(op, length: int = 64, heads: int = 4, *, keys: int | None = None, **inputs: Any):
    """A figure of matplotlib: for each head a map of log weights over keys and queries; blank where a pair is dead."""
    from matplotlib.figure import Figure

    w = weights(op, length, heads, keys=keys, **inputs)
    with np.errstate(divide="ignore", invalid="ignore"):
        shown = np.ma.masked_invalid(np.where(w != 0, np.log(np.abs(w)), np.nan))
    columns = min(heads, 4)
    rows = -(-heads // columns)
    figure = Figure(figsize=(3 * columns + 0.8, 3 * rows + 0.4), layout="constrained")
    least = float(shown.min()) if shown.count() else 0.0
    most = float(shown.max()) if shown.count() else 1.0
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for head, ax in enumerate(axes):
        if head >= heads:
            ax.set_axis_off()
            continue
        picture = ax.imshow(shown[head], vmin=least, vmax=max(most, least + 1e-9), interpolation="nearest")
        ax.set_title(f"head {head}")
        ax.set_xlabel("key")
        ax.set_ylabel("query")
    figure.colorbar(picture, ax=axes.tolist(), label="log weight")
    figure.suptitle(f"{op.name}: {int(np.count_nonzero(w))} of {w.size} pairs are live")
    return figure
