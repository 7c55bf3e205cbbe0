"""Expressions of the spec language: their text, how strongly it binds, what kind of number it is and where it lies."""

from __future__ import annotations

import math

import torch

from ._trace import Node, refuse

BOOL, INT, FLOAT = "bool", "int", "float"
OR, XOR, AND, SHIFT, SUM, PRODUCT, UNARY, POWER, ATOM = range(9)  # Lua's order, for what we print
_SYMBOLS = {"|": OR, "~": XOR, "&": AND, "<<": SHIFT, ">>": SHIFT, "+": SUM, "-": SUM, "*": PRODUCT, "/": PRODUCT,
            "//": PRODUCT, "%": PRODUCT, "^": POWER}  # fmt: skip
_INF = math.inf
I32 = (-(2**31), 2**31 - 1)

# Names that a local would hide, and those that an input cannot have.
RESERVED = set(
    "and break do else elseif end false for function goto if in local nil not or repeat return then true until "
    "while at x s block ipairs inf pi exp exp2 log log2 sqrt rsqrt sin cos tanh sigmoid silu erf normal_cdf gelu "
    "relu abs min max clamp floor ceil lt le gt ge eq ne where random f32 i32 detach rowmax rowmin rowsum dimsum "
    "dimmax cumsum revcumsum logcumsumexp revlogcumsumexp rank placed taken cumexpsum revcumexpsum splitsum "
    "splitmax softplus unit causal both either softmax softmax_with_sink softmax_with_dropout softmax_times "
    "elementwise_weights softmax_states softmax_step softmax_epilogue softmax_weight softmax_combine finite inverse "
    "log_of_sum activation gated rotary rope_inputs rope_angle lrpe md_lrpe over_d over_n adamw_step "
    "packed_sequence attention linear_attention rowwise elementwise online_func tensor scalar param half "
    "interleaved chain with_maximum".split()
)
TAKEN = RESERVED | set(
    "q k v o q2 k2 dq dk dv do lse dlse b h h_kv kv d d_v q_start kv_start len_kv "
    "h_start n_h used_kv pages cu_q cu_kv part_o part_rows max_scores "
    "live_blocks whole_blocks".split()
)


class Expr:
    __slots__ = ("text", "binds", "kind", "lo", "hi", "value")

    def __init__(self, text: str, binds: int, kind: str, lo=-_INF, hi=_INF, value=None):
        self.text, self.binds, self.kind = text, binds, kind
        self.lo, self.hi = lo, hi
        self.value = value  # of a constant

    def within(self, lo, hi) -> "Expr":
        self.lo, self.hi = lo, hi
        return self


def kind_of(dtype: torch.dtype) -> str:
    if dtype is torch.bool:
        return BOOL
    return FLOAT if dtype.is_floating_point else INT


def constant(value, kind: str | None = None) -> Expr:
    """A number of Python as a literal."""
    if isinstance(value, bool) and kind in (None, BOOL):
        return Expr("true" if value else "false", ATOM, BOOL, 0, 1, value)
    if kind == FLOAT or (kind is None and isinstance(value, float)):
        value = float(value)
        return Expr(_float_text(value), UNARY if value < 0 else ATOM, FLOAT, value, value, value)
    value = int(value)
    return Expr(str(value), UNARY if value < 0 else ATOM, INT, value, value, value)


def _float_text(value: float) -> str:
    if value != value:
        return "(0 / 0)"
    if value in (_INF, -_INF):
        return "inf" if value > 0 else "-inf"
    return repr(value)


def binary(symbol: str, a: Expr, b: Expr, kind: str, lo=-_INF, hi=_INF) -> Expr:
    binds = _SYMBOLS[symbol]
    left = f"({a.text})" if a.binds < binds or (symbol == "^" and a.binds == binds) else a.text
    right = f"({b.text})" if b.binds <= binds and symbol != "^" or b.binds < binds else b.text
    # a + (b + c) is not (a + b) + c in f32, so the order stays as it is written
    return Expr(f"{left} {symbol} {right}", binds, kind, lo, hi)


def prefix(symbol: str, a: Expr, kind: str, lo=-_INF, hi=_INF) -> Expr:
    inner = f"({a.text})" if a.binds <= UNARY else a.text
    return Expr(symbol + inner, UNARY, kind, lo, hi)


def call(name: str, *args: Expr, kind: str = FLOAT, lo=-_INF, hi=_INF) -> Expr:
    return Expr(f"{name}({', '.join(a.text for a in args)})", ATOM, kind, lo, hi)


def number(e: Expr) -> Expr:
    """A bool as 1 or 0."""
    if e.kind != BOOL:
        return e
    if e.value is not None:
        return constant(int(e.value))
    return call("where", e, constant(1), constant(0), kind=INT, lo=0, hi=1)


def real(e: Expr) -> Expr:
    """As f32."""
    e = number(e)
    if e.kind == FLOAT:
        return e
    return constant(float(e.value)) if e.value is not None else call("f32", e, lo=e.lo, hi=e.hi)


def truth(e: Expr) -> Expr:
    """A number as a bool: is it not 0?"""
    if e.kind == BOOL:
        return e
    if e.value is not None:
        return constant(bool(e.value))
    zero = constant(0 if e.kind == INT else 0.0)
    return call("ne", e, zero, kind=BOOL, lo=0, hi=1)


def as_kind(e: Expr, kind: str) -> Expr:
    if kind == BOOL:
        return truth(e)
    if kind == INT and e.kind == FLOAT:
        return constant(int(e.value)) if e.value is not None else call("i32", e, kind=INT)
    return real(e) if kind == FLOAT else number(e)


def check_range(node: Node, e: Expr, reads_table: bool) -> None:
    """Integers of torch have 64 bits here, ours 32: what positions alone take beyond them is refused."""
    if e.kind != INT:
        return
    lo, hi = I32
    if node.dtype in (torch.int8, torch.uint8, torch.int16) and not reads_table:
        info = torch.iinfo(node.dtype)
        lo, hi = info.min, info.max
    ends = [v for v in (e.lo, e.hi) if abs(v) != _INF]
    narrow = lo > I32[0]
    if any(v < lo or v > hi for v in ends) or (narrow and len(ends) < 2):
        if narrow:
            dtype = str(node.dtype).removeprefix("torch.")
            refuse(node.place, f"{dtype} may wrap around in `{e.text}`; cast to torch.int32 instead, or before")
        refuse(node.place, f"an integer may leave 32 bits in `{e.text}`, and integers of kernels have no more; keep it "
               "smaller, as by % before *, or compute it in float")  # fmt: skip
