"""Pictures of a spec: what each query takes from each key, by the host device.

With v the identity matrix, o is the matrix of weights itself; so a picture shows what the spec computes, and not what
somebody believes of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _library as c


def weights(op, length: int = 64, heads: int = 4, *, keys: int | None = None, **inputs: Any) -> np.ndarray:
    """The weights [heads, length, keys] of queries and keys that say nothing: 0, so that scores are score_mod(0).

    Of linear attention: what is left of each token, by its decay, of equal queries and keys of length 1. inputs: the
    spec's own, as a call takes them, for a batch of 1.
    """
    if op.kind not in ("attention", "linear_attention"):
        raise c.ArgumentError(f"draw: {op.name} is {op.kind}; pictures are of attention and linear_attention")
    keys = length if keys is None else keys
    linear = op.kind == "linear_attention"
    if linear and keys != length:
        raise c.ArgumentError("draw: linear attention has as many keys as queries")
    d = 16
    q, k = np.zeros((1, heads, length, d)), np.zeros((1, heads, keys, d))
    if linear:
        q[..., 0], k[..., 0] = d**0.5, 1.0
    v = np.broadcast_to(np.eye(keys), (1, heads, keys, keys)).copy()
    given = dict(q=q, k=k, v=v) if "k" in op.forward.by_name else dict(q=q, v=v)
    o = op(**given, **{n: _exact(x) for n, x in inputs.items()})
    return (o if isinstance(o, np.ndarray) else o.o)[0]


def _exact(value: Any) -> Any:
    from ._op import _to_double

    return _to_double(value)


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
