"""RWKV-4: a scan whose writes are exponentials of keys, of which no bound is known; so its state has a reference.

m_t = max(m_(t-1) + w, k_t) is that reference, and the state is kept times e^-m_t: then both e^(w + m_(t-1) - m_t), by
which it decays, and e^(k_t - m_t), by which a token is written, are at most 1, and specs/hgrn.lua is the scan. No
result but the last state depends on what the reference is, so it has no gradient on the way.
"""

from __future__ import annotations

import functools

import torch

from .. import _library as c
from .._op import load
from ..torch._function import wrap
from ._call import LAYOUT

_WIDTH = 128  # of channels that are value channels of one head
_ROWS = 16  # of a state, of which the scan has the first


@functools.lru_cache(maxsize=1)
def _scan():
    return wrap(load("hgrn"), layout=LAYOUT, results=("o", "state_out"))


def _references(first, k, w):
    """m of every token [b, t, c], and in front of it the first: doubling the stretch that is looked at."""
    m = torch.cat([first, k], 1)
    step = 1
    while step < m.shape[1]:
        m = torch.cat([m[:, :step], torch.maximum(m[:, step:], m[:, :-step] + step * w)], 1)
        step *= 2
    return m


def _last_reference(first, k, w):
    """m behind the last token [b, 1, c], as one maximum over all tokens."""
    behind = torch.arange(k.shape[1], -1, -1, device=k.device, dtype=k.dtype)[:, None]
    return (torch.cat([first, k], 1) + behind * w).amax(1, keepdim=True)


def _heads(channels: int) -> int:
    widths = [n for n in range(8, _WIDTH + 1, 8) if channels % n == 0]
    return channels // widths[-1] if widths else 1


def wkv(w, u, k, v, state):
    """o [b, t, c] and the last state [b, 3, 1, c]: sums of e^.. v and of e^.., and m."""
    if k.shape != v.shape or k.dim() != 3 or tuple(state.shape) != (k.shape[0], 3, 1, k.shape[2]):
        raise c.ArgumentError(
            f"expected k and v [b, t, c] and state [b, 3, 1, c], given {list(k.shape)}, {list(v.shape)} and "
            f"{list(state.shape)}")
    kind = torch.float64 if k.dtype is torch.float64 else torch.float32
    given = k.dtype
    w, u, k, v, state = (x.to(kind) for x in (w, u, k, v, state))
    b, t, channels = k.shape
    w = -w.exp()
    m = _references(state[:, 2].detach(), k.detach(), w.detach())
    before, now = m[:, :-1], m[:, 1:]
    g = w + (before - now)
    g = g - g.detach().relu()  # what rounding leaves above 0
    written = (k - now).exp()
    first = state[:, :2, 0] * (state[:, 2:, 0] - m[:, None, 0]).nan_to_num(0.0).exp()
    values = torch.stack([written * v, written], 2)  # [b, t, 2, c]
    n = 2 * _heads(channels)
    begin = torch.nn.functional.pad(first.reshape(b, n, 1, -1), (0, 0, 0, _ROWS - 1))
    scan, last = _scan()(q=k.new_zeros(b, t, 1, _ROWS), v=values.reshape(b, t, n, -1),
                         g=g[:, :, None].expand(b, t, 2, channels).reshape(b, t, n, -1), state=begin)  # fmt: skip
    sums = torch.cat([first[:, None], scan.reshape(b, t, 2, channels)[:, :-1]], 1)
    own = u + k
    top = torch.maximum(own, before).detach()
    old, new = (before - top).exp(), (own - top).exp()
    o = (old * sums[:, :, 0] + new * v) / (old * sums[:, :, 1] + new)
    move = _last_reference(state[:, 2], k, w)
    move = move - move.detach()  # the last state's exponent has a gradient, and what it is taken from, too
    last = torch.cat([last[:, :, 0].reshape(b, 2, channels) * (-move).exp(), m[:, -1:] + move], 1)[:, :, None]
    return o.to(given), last.to(given)
