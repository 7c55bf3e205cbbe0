"""Does a spec of attention count its queries? A call of some of them numbers its rows from 0, so that `at.row` and
`at.len_q` are not those of all. An input over "q" that is read at `at.row` is cut with them, and stays right.
"""

from __future__ import annotations

import re

from ... import _library as c
from ..._arrays import Shaped
from ..._op import Op

_SIZES = {"b": 1, "seqs": 1, "h": 2, "h_kv": 2, "q": 64, "kv": 64, "d": 64, "d_v": 64, "d2": 64}
_FORMULA = re.compile(r"^(.*)// [^/]*:\d+$")  # a line of a kernel that a line of the spec has made
# Where rows of q and o are made anew, v.t is at.row.
_INDEX = re.compile(r"m_clamp_index\((?:r\.row|v\.t|h\.row), z\.len_q\)")
_COUNTS = re.compile(r"\b(?:r|h)\.row\b|\bz\.len_q\b|\bv\.t\b")


def counts_rows(op: Op) -> str:
    """"" where it does not, else what a kernel's formula does with them, or why that is not known."""
    found = op._extensions.get("counts rows")
    if found is None:
        found = op._extensions["counts rows"] = _look(op)
    return found


def _look(op: Op) -> str:
    try:
        text = op.source(**_example(op), arch="sm_80")
    except c.LatheError as error:
        return f"what it does with at.row is not known, as no kernel can be made to look at: {error}"
    for line in text.splitlines():
        formula = _FORMULA.match(line)
        rest = _INDEX.sub("", formula.group(1)) if formula else ""
        if _COUNTS.search(rest):
            return f"it counts queries, by at.row or at.len_q ({line.rpartition('// ')[2]})"
    return ""


def _example(op: Op) -> dict:
    """Arguments of a call, without data."""
    given = {}
    for a in op.forward.arguments:
        if a.role == c.SCALAR and a.is_input:
            given[a.name] = 1
        elif a.role == c.TENSOR and (a.is_input or not a.optional):
            shape = tuple(d.times * _SIZES.get(d.name, 64) + d.plus if d.name else d.plus for d in a.dims)
            given[a.name] = Shaped(shape, "f16" if a.dtype == c.NONE else c.DTYPE_NAMES[a.dtype])
    return given
