"""Which scheme serves a problem, what it sends, and why. Every rank comes to the same answer: it follows from the spec
and from what all ranks have agreed on.
"""

from __future__ import annotations

from typing import NamedTuple

from ... import _library as c
from ..._nature import counts_tokens, nature
from ..._op import Op

SCHEMES = ("heads", "gather", "keys", "ring", "states")
ORDER = ("heads", "gather", "ring")  # of those that send as much the first; a ring sends what gather does


class Sizes(NamedTuple):
    """Of all ranks together. queries: all, on every rank, or None."""

    ranks: int
    b: int
    h: int
    h_kv: int
    q: int
    kv: int
    d: int
    d_v: int
    bytes: int  # of an element of q
    row_q: int  # bytes of a query of one head, q and q2, and
    row_kv: int  # of a key, k, v and k2, and
    wide_kv: int  # of its gradients as they are added up
    whole_q: bool
    zigzag: bool
    packed: bool
    trains: bool
    interleaved: bool = False
    behind: bool = False  # linear attention: the state behind all tokens is asked for
    offset: bool = False  # linear attention: where a rank's tokens begin is added to a scalar


class Verdict(NamedTuple):
    scheme: str
    refused: str  # why it does not serve, or ""
    sent: int  # bytes that a rank sends in a forward pass, and
    sent_back: int  # in a backward pass
    what: str


def judge(op: Op, s: Sizes, scheme: str) -> Verdict:
    sent, back, what = _traffic(op, s, scheme)
    return Verdict(scheme, _refusal(op, s, scheme), sent, back, what)


def choose(op: Op, s: Sizes, wanted: str) -> list[Verdict]:
    """All verdicts, that of the scheme to take first. Raises where none serves, or not the one that is wanted."""
    every = [judge(op, s, name) for name in SCHEMES]
    if wanted != "auto":
        first = next(v for v in every if v.scheme == wanted)
        if first.refused:
            raise c.UnsupportedError(f"{op.name}: scheme '{wanted}': {first.refused}{_instead(every)}")
        return [first, *(v for v in every if v is not first)]
    serving = [v for v in every if not v.refused]
    if not serving:
        why = "; ".join(f"{v.scheme}: {v.refused}" for v in every if _is_of(op, s, v.scheme))
        raise c.UnsupportedError(f"{op.name}: no scheme serves it over {s.ranks} ranks: {why}")
    total = lambda v: v.sent + (v.sent_back if s.trains else 0)
    rank = lambda v: ORDER.index(v.scheme) if v.scheme in ORDER else 0
    serving.sort(key=lambda v: (total(v), rank(v)))
    return serving + [v for v in every if v.refused]


def _instead(every) -> str:
    serving = [v.scheme for v in every if not v.refused]
    return f"; scheme {' or '.join(repr(n) for n in serving)} serves it" if serving else ""


def _is_of(op: Op, s: Sizes, scheme: str) -> bool:
    """Is it a scheme of such operators at all?"""
    if op.kind == "linear_attention":
        return scheme == "states"
    return scheme == "keys" if s.whole_q else scheme in ORDER


def _refusal(op: Op, s: Sizes, scheme: str) -> str:
    if op.kind == "linear_attention":
        from ._states import refusal

        return refusal(op, s) if scheme == "states" else "it is of attention, and this is linear attention"
    if scheme == "states":
        return "it is of linear attention, and this is attention"
    if s.interleaved and scheme != "keys":
        return "interleaved shards are of caches, which scheme 'keys' takes (queries='whole')"
    if s.whole_q != (scheme == "keys"):
        return ("each rank has all queries (queries='whole'), and this one cuts them" if s.whole_q else
                "it needs all queries on every rank (queries='whole'), as in decoding")  # fmt: skip
    return {"heads": _no_heads, "gather": _no_gather, "keys": _no_keys, "ring": _no_ring}[scheme](op, s)


def _no_heads(op: Op, s: Sizes) -> str:
    return f"{s.h_kv} key heads cannot be shared out to {s.ranks} ranks" if s.h_kv < s.ranks else ""


def _no_gather(op: Op, s: Sizes) -> str:
    if s.packed:
        return "packed sequences (cu_q) are cut by heads alone; document.lua takes documents as an input instead"
    counted = counts_tokens(op)
    return f"{counted}, and the queries of a rank are not all" if counted else ""


def _no_parts(op: Op) -> str:
    if op.joining.arguments:
        return ""
    return "its rows cannot be computed in parts, as its online_func has no combine"


def _no_keys(op: Op, s: Sizes) -> str:
    if s.packed:
        return "packed sequences (cu_q) are cut by heads alone"
    if s.trains:
        return "it is of decoding and has no gradients; call it under torch.no_grad(), or cut the queries, too"
    return _no_parts(op)


def _no_ring(op: Op, s: Sizes) -> str:
    from ._ring import no_gradients

    return _no_gather(op, s) or _no_parts(op) or (no_gradients(op) if s.trains else "")


# ---- bytes ------------------------------------------------------------------------------------------------------


def _traffic(op: Op, s: Sizes, scheme: str) -> tuple[int, int, str]:
    others = s.ranks - 1
    tokens_q, tokens_kv = -(-s.q // s.ranks), -(-s.kv // s.ranks)  # of a rank
    keys = s.b * s.h_kv * tokens_kv * s.row_kv
    if scheme == "heads":
        rows = s.b * s.h * tokens_q * (s.row_q + s.d_v * s.bytes)
        share = (rows + keys) * others // s.ranks
        return share, share, "q, k, v and o of other ranks' heads, by all-to-all"
    if scheme in ("gather", "ring"):
        how = "to all others at once" if scheme == "gather" else "of one rank after the other, beside computing"
        sums = s.b * s.h_kv * tokens_kv * s.wide_kv * s.ranks  # which come home at last
        back = keys * others + (sums if scheme == "ring" else 0)
        return keys * others, back, f"k and v {how}; backward dk and dv go back as sums"
    if scheme == "keys":
        wide = 8 if s.bytes == 8 else 4
        parts = s.b * s.h * s.q * (s.d_v + _row_states(op) + 1) * wide
        return parts * others, 0, "parts of rows in f32, by all-gather"
    return *_states_sent(op, s), "a state, and what becomes of one on the way, by all-gather"


def _states_sent(op: Op, s: Sizes) -> tuple[int, int]:
    if op.kind != "linear_attention":
        return 0, 0
    of_state, others = nature(op), s.ranks - 1
    element = s.b * s.h * s.d * (8 if s.bytes == 8 else 4)
    state = element * (s.d_v + of_state.has_norm)
    turn = 0 if s.ranks < 3 or of_state.whole else element * (s.d if of_state.mixes else s.d_v)
    end = state if s.behind else 0
    return (state + turn + end) * others, (state + end) * others


def _row_states(op: Op) -> int:
    rows = op.joining.by_name.get("part_rows")
    return rows.dims[-1].plus - 1 if rows and rows.dims[-1].plus else 2


def told(op: Op, s: Sizes, verdicts: list[Verdict], wanted: str) -> str:
    first, *rest = verdicts
    why = "asked for" if wanted != "auto" else _why(first, rest, s)
    size = lambda n: f"{n / 2**20:.1f} MiB" if n >= 2**20 else f"{n / 2**10:.1f} KiB" if n >= 2**10 else f"{n} bytes"
    back = f", backward {size(first.sent_back)}" if first.sent_back else ""
    lines = [f"{op.name}: scheme {first.scheme} over {s.ranks} ranks: {why}",
             f"a rank sends {size(first.sent)}{back}: {first.what}",
             f"a rank computes {_computes(first.scheme)}"]  # fmt: skip
    for v in rest:
        if _is_of(op, s, v.scheme):
            lines.append(f"{v.scheme}: {v.refused or 'serves, and sends ' + size(v.sent)}")
    return "\n".join(lines)


def _why(first: Verdict, rest, s: Sizes) -> str:
    others = [v for v in rest if not v.refused]
    if not others:
        return "the only one that serves"
    equal = all(v.sent + v.sent_back * s.trains == first.sent + first.sent_back * s.trains for v in others)
    return "all that serve send as much, and its work is even" if equal else "it sends the least"


def _computes(scheme: str) -> str:
    return {
        "heads": "all tokens of its heads: one call, with h_start and n_h",
        "gather": "its own queries with all keys: a call for each run of queries, with q_start",
        "keys": "all queries with its own keys: parts of rows, with kv_start and len_kv, which are then merged",
        "ring": "its own queries with the keys of one rank after the other: parts of rows, which are then merged",
        "states": "its own tokens, from the state behind those of the ranks before it",
    }[scheme]
