"""Does a spec count what it sees from the first token of a call? A rank has some of all tokens, so `at.row` and
`at.len_q` of attention, `at.t`, `at.pos` and `at.len_t` of linear attention are not those of all. As the place in an
input over these tokens they stay right, for such an input is cut, too.

What a spec reads is told by its kernel: a line that a formula has made ends in the spec's own line.
"""

from __future__ import annotations

import re

from ... import _library as c
from ..._arrays import Shaped
from ..._op import Op

_SIZES = {"b": 1, "seqs": 1, "h": 2, "h_kv": 2, "h_k": 2, "q": 64, "kv": 64, "t": 256, "d": 64, "d_v": 64, "d2": 64}
_FORMULA = re.compile(r"^(.*)// [^/]*:\d+$")
# (where it is a place in an input, where it is a number, what it is called)
_ATTENTION = (
    re.compile(r"m_clamp_index\((?:r\.row|v\.t|h\.row), z\.len_q\)"),  # v.t: in mods of q and o
    re.compile(r"\b[rh]\.row\b|\bz\.len_q\b|\bv\.t\b"),
    "it counts queries, by at.row or at.len_q",
)
_LINEAR = (
    re.compile(r"\(long long\)v\.t \* x\.s\d+_\w+|v\.t \* x\.value_t"),
    re.compile(r"\bv\.(?:t|pos)\b|\bz\.len\w*"),
    "it counts tokens, by at.pos, at.t or at.len_t",
)


def counts_tokens(op: Op) -> str:
    """"" where it does not, else where it does, or why that is not known."""
    found = op._extensions.get("counts tokens")
    if found is None:
        found = op._extensions["counts tokens"] = _look(op)
    return found


def _look(op: Op) -> str:
    place, number, what = _ATTENTION if op.kind == "attention" else _LINEAR
    try:
        text = op.source(**_example(op), arch="sm_80")
    except c.LatheError as error:
        return f"what it counts is not known, as no kernel can be made to look at: {error}"
    for line in text.splitlines():
        formula = _FORMULA.match(line)
        if formula and number.search(place.sub("", formula.group(1))):
            return f"{what} ({line.rpartition('// ')[2]})"
    return ""


def _example(op: Op) -> dict:
    """Arguments of a call, without data; those that may be left out are there."""
    given = {}
    for a in op.forward.arguments:
        if a.role == c.SCALAR and a.is_input:
            given[a.name] = 1
        elif a.role == c.TENSOR and (a.is_input or not a.optional):
            shape = tuple(d.times * _SIZES.get(d.name, 64) + d.plus if d.name else d.plus for d in a.dims)
            given[a.name] = Shaped(shape, "f16" if a.dtype == c.NONE else c.DTYPE_NAMES[a.dtype])
    return given
