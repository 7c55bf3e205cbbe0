"""Attention in a few lines of NumPy, written apart from the library: what the tests compare with."""

import numpy as np


def attention(q, k, v, mask=None, scale=None):
    """o and lse in double precision. mask(query position, key) -> bool, positions end-aligned."""
    q, k, v = (np.asarray(a, np.float64) for a in (q, k, v))
    groups = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, groups, 1), np.repeat(v, groups, 1)
    scores = q @ k.swapaxes(2, 3) * (q.shape[3] ** -0.5 if scale is None else scale)
    n_q, n_k = scores.shape[2:]
    if mask is not None:
        live = mask(np.arange(n_q)[:, None] + n_k - n_q, np.arange(n_k)[None, :])
        scores = np.where(live, scores, -np.inf)
    most = scores.max(-1, keepdims=True)
    weights = np.exp(scores - most)
    total = weights.sum(-1, keepdims=True)
    return weights / total @ v, (most + np.log(total))[..., 0]


def causal(query, key):
    return query >= key
