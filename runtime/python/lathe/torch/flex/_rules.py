"""A rule for each operation of torch: what it is in the spec language, with torch's own meaning.

Rules take the node and its operands, tensors as `Expr`, and give an `Expr` of the kind of the node's dtype.
"""

from __future__ import annotations

import math

import torch

from ._lua import (BOOL, FLOAT, INT, Expr, as_kind, binary, call, constant, kind_of, number, prefix, real,
                   truth)  # fmt: skip
from ._trace import Node, refuse

_INF = math.inf
_MOST = torch.finfo(torch.float32).max
RULES: dict = {}

# Helpers in Lua, by name: printed into a spec that uses them.
HELPERS = {
    "trunc_div": """-- a / b cut towards zero, of integers
local function trunc_div(a, b)
  local n = abs(a) // abs(b)
  return where(lt(a, 0) ~ lt(b, 0), -n, n)
end""",
    "cut": "local function cut(a) return where(lt(a, 0.0), ceil(a), floor(a)) end -- towards zero",
    "nearest": """-- to the nearest whole number, halves to the even one
local function nearest(a)
  local low = floor(a)
  local rest = a - low
  local up = gt(rest, 0.5) | eq(rest, 0.5) & ne(floor(low * 0.5) * 2.0, low)
  return where(up, low + 1.0, low)
end""",
    "from_end": "local function from_end(i, n) return where(lt(i, 0), i + n, i) end -- -1 is the last of n",
    "sign": "local function sign(a) return where(gt(a, 0), 1, 0) - where(lt(a, 0), 1, 0) end",
    "square": "local function square(a) return a * a end",
    "cube": "local function cube(a) return a * a * a end",
}


def rule(*names: str):
    def keep(function):
        for name in names:
            RULES[name] = function
        return function

    return keep


def expr(value, kind: str | None = None) -> Expr:
    return value if isinstance(value, Expr) else constant(value, kind)


def _pair(node: Node, a, b):
    """Two operands as numbers of one kind: a literal beside a float is a float."""
    a, b = number(expr(a)), number(expr(b))
    kind = FLOAT if FLOAT in (a.kind, b.kind, kind_of(node.dtype)) else INT
    if kind == FLOAT:
        a, b = (constant(float(e.value)) if e.value is not None else e for e in (a, b))
    return a, b


def _ends(*values):
    values = [0 if v != v else v for v in values]  # inf * 0
    return min(values), max(values)


# ---- arithmetic ------------------------------------------------------------------------------------------------------


@rule("add", "sub", "rsub")
def _sum(t, node, a, b, alpha=1):
    if node.operator == "rsub":
        a, b = b, a
    a, b = expr(a), expr(b)
    if kind_of(node.dtype) == BOOL:
        return either(truth(a), truth(b))
    a, b = _pair(node, a, b)
    if alpha != 1:
        b = binary("*", *_pair(node, constant(alpha), b), b.kind)
    minus = node.operator != "add"
    lo, hi = (a.lo - b.hi, a.hi - b.lo) if minus else (a.lo + b.lo, a.hi + b.hi)
    lo, hi = (-_INF if lo != lo else lo), (_INF if hi != hi else hi)
    return binary("-" if minus else "+", a, b, kind_of(node.dtype), lo, hi)


@rule("mul")
def _product(t, node, a, b):
    a, b = expr(a), expr(b)
    if kind_of(node.dtype) == BOOL:
        return both(truth(a), truth(b))
    a, b = _pair(node, a, b)
    lo, hi = _ends(a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi)
    return binary("*", a, b, kind_of(node.dtype), lo, hi)


@rule("div", "true_divide")
def _quotient(t, node, a, b, *, rounding_mode=None):
    if rounding_mode == "floor":
        return _floor_division(t, node, a, b)
    a, b = number(expr(a)), number(expr(b))
    if rounding_mode == "trunc":
        if kind_of(node.dtype) == INT:
            return _bounded(t.helper("trunc_div", a, b, kind=INT), a, b)
        return t.helper("cut", _over(a, b))
    return _over(a, b)


def _over(a: Expr, b: Expr) -> Expr:
    if b.value is not None:
        b = constant(float(b.value))
    e = binary("/", a, b, FLOAT)
    return e.within(*_ends(a.lo / b.lo, a.hi / b.lo)) if b.value not in (None, 0) and b.value == b.value else e


@rule("floor_divide")
def _floor_division(t, node, a, b):
    a, b = number(expr(a)), number(expr(b))
    if kind_of(node.dtype) == FLOAT:
        refuse(node.place, "`//` of floats takes an exact remainder in torch, which f32 kernels do not have; write "
               "torch.floor(a / b), or divide integers")  # fmt: skip
    e = binary("//", a, b, INT)
    if b.value is not None and b.value > 0:
        return e.within(*(v if abs(v) == _INF else v // b.value for v in (a.lo, a.hi)))
    return _bounded(e, a, b)


def _bounded(e: Expr, a: Expr, b: Expr) -> Expr:
    """Of a quotient: no larger than a."""
    most = max(abs(a.lo), abs(a.hi))
    return e.within(0 if a.lo >= 0 and b.lo > 0 else -most - 1 if most < _INF else -_INF, most)


@rule("remainder")
def _remainder(t, node, a, b):
    a, b = number(expr(a)), number(expr(b))
    if kind_of(node.dtype) == FLOAT:
        refuse(node.place, "`%` of floats is exact in torch, and not in f32 kernels; write a - b * torch.floor(a / b), "
               "or use integers")  # fmt: skip
    lo = 0 if b.lo > 0 else b.lo + 1
    hi = 0 if b.hi < 0 else b.hi - 1
    return binary("%", a, b, INT, lo, min(hi, a.hi) if a.lo >= 0 and b.lo > 0 else hi)


@rule("fmod")
def _fmod(t, node, a, b):
    a, b = number(expr(a)), number(expr(b))
    if kind_of(node.dtype) == FLOAT:
        refuse(node.place, "fmod of floats is exact in torch, and not in f32 kernels; use integers")
    if a.lo >= 0 and b.lo > 0:
        return _remainder(t, node, a, b)
    return binary("-", a, binary("*", b, t.helper("trunc_div", a, b, kind=INT), INT), INT)


@rule("neg")
def _negative(t, node, a):
    return constant(-a.value) if a.value is not None else prefix("-", number(a), kind_of(node.dtype), -a.hi, -a.lo)


@rule("abs")
def _absolute(t, node, a):
    lo = 0 if a.lo <= 0 <= a.hi else min(abs(a.lo), abs(a.hi))
    return call("abs", a, kind=a.kind, lo=lo, hi=max(abs(a.lo), abs(a.hi)))


@rule("pow")
def _power(t, node, a, b):
    a, b = number(expr(a)), number(expr(b))
    if kind_of(node.dtype) == INT:
        if b.value in (2, 3):
            return t.helper("square" if b.value == 2 else "cube", a, kind=INT).within(
                *_ends(a.lo**b.value, a.hi**b.value, 0 if a.lo <= 0 <= a.hi else a.lo**b.value)
            )
        if a.value == 2 and b.lo >= 0 and b.hi <= 30:
            return binary("<<", constant(1), b, INT, 1, 2**b.hi)
        refuse(node.place, "a power of integers; write products, or cast to float before")
    if b.value is not None:
        special = {0.5: lambda: call("sqrt", a), 1: lambda: real(a), 2: lambda: t.helper("square", real(a)),
                   3: lambda: t.helper("cube", real(a)), -1: lambda: binary("/", constant(1.0), a, FLOAT),
                   -0.5: lambda: call("rsqrt", a)}  # fmt: skip
        if b.value in special:
            return special[b.value]()
    if a.value == 2:
        return call("exp2", b, lo=0)
    return binary("^", a, b, FLOAT)


# ---- functions of one number -----------------------------------------------------------------------------------------

_SAME = {"exp": (0, _INF), "exp2": (0, _INF), "log": None, "log2": None, "sqrt": (0, _INF), "rsqrt": (0, _INF),
         "sin": (-1, 1), "cos": (-1, 1), "tanh": (-1, 1), "sigmoid": (0, 1), "silu": None, "erf": (-1, 1),
         "relu": (0, _INF)}  # fmt: skip


def _function(name, ends):
    def apply(t, node, a):
        e = call(name, number(a), kind=FLOAT)
        return e.within(*ends) if ends else e

    return apply


for _name, _range in _SAME.items():
    RULES[_name] = _function(_name, _range)


@rule("relu")
def _relu(t, node, a):
    if a.kind == INT:
        return call("max", a, constant(0), kind=INT, lo=max(a.lo, 0), hi=max(a.hi, 0))
    return call("relu", a, lo=max(a.lo, 0), hi=max(a.hi, 0))


@rule("floor", "ceil")
def _floor(t, node, a):
    if a.kind == INT:
        return a
    ends = (v if abs(v) == _INF else float(math.floor(v) if node.operator == "floor" else math.ceil(v))
            for v in (a.lo, a.hi))  # fmt: skip
    return call(node.operator, a).within(*ends)


@rule("trunc", "fix")
def _trunc(t, node, a):
    return a if a.kind == INT else t.helper("cut", a).within(a.lo - 1, a.hi + 1)


@rule("round")
def _round(t, node, a, *, decimals=0):
    if decimals:
        refuse(node.place, "round to decimals; round a multiple, torch.round(x * 10) / 10")
    return a if a.kind == INT else t.helper("nearest", a).within(a.lo - 1, a.hi + 1)


@rule("frac")
def _frac(t, node, a):
    a = t.once(a)
    return binary("-", a, t.helper("cut", a), FLOAT, -1, 1)


@rule("sign", "sgn")
def _sign(t, node, a):
    e = t.helper("sign", number(a), kind=INT).within(-1, 1)
    return as_kind(e, kind_of(node.dtype))


@rule("reciprocal")
def _reciprocal(t, node, a):
    return binary("/", constant(1.0), number(a), FLOAT)


@rule("square")
def _square(t, node, a):
    return _power(t, node, a, 2)


@rule("nan_to_num")
def _nan_to_num(t, node, a, nan=None, posinf=None, neginf=None):
    if a.kind != FLOAT:
        return a
    a = t.once(a)
    low, high = (-_MOST if neginf is None else neginf), (_MOST if posinf is None else posinf)
    e = call("where", call("eq", a, constant(-_INF), kind=BOOL), constant(float(low)), a)
    e = call("where", call("eq", a, constant(_INF), kind=BOOL), constant(float(high)), e)
    return call("where", call("ne", a, a, kind=BOOL), constant(float(nan or 0.0)), e)


@rule("log1p")
def _log1p(t, node, a):
    return call("log", binary("+", constant(1.0), real(a), FLOAT))


@rule("expm1")
def _expm1(t, node, a):
    return binary("-", call("exp", real(a)), constant(1.0), FLOAT, -1)


@rule("tan")
def _tan(t, node, a):
    a = t.once(real(a))
    return binary("/", call("sin", a), call("cos", a), FLOAT)


@rule("gelu")
def _gelu(t, node, a, *, approximate="none"):
    if approximate == "none":
        return call("gelu", a)
    a = t.once(real(a))
    inner = binary("+", a, binary("*", constant(0.044715), t.helper("cube", a), FLOAT), FLOAT)
    bend = call("tanh", binary("*", constant(math.sqrt(2 / math.pi)), inner, FLOAT))
    return binary("*", binary("*", constant(0.5), a, FLOAT), binary("+", constant(1.0), bend, FLOAT), FLOAT)


@rule("softplus")
def _softplus(t, node, a, beta=1, threshold=20):
    a = t.once(real(a))
    wide = a if beta == 1 else binary("*", a, constant(float(beta)), FLOAT)
    e = call("softplus", wide, lo=0)
    if beta != 1:
        e = binary("/", e, constant(float(beta)), FLOAT, 0)
    if threshold >= 20:  # beyond which softplus(x) is x to 2e-9
        return e
    return call("where", call("gt", wide, constant(float(threshold)), kind=BOOL), a, e)


@rule("log_sigmoid", "log_sigmoid_forward")
def _log_sigmoid(t, node, a):
    return prefix("-", call("softplus", prefix("-", a, FLOAT)), FLOAT, -_INF, 0)


@rule("leaky_relu")
def _leaky_relu(t, node, a, negative_slope=0.01):
    a = t.once(a)
    down = binary("*", constant(float(negative_slope)), a, FLOAT)
    return call("where", call("gt", a, constant(0.0), kind=BOOL), a, down)


@rule("elu")
def _elu(t, node, a, alpha=1.0, scale=1.0, input_scale=1.0):
    a = t.once(a)
    below = call("min", binary("*", a, constant(float(input_scale)), FLOAT), constant(0.0))
    below = binary("*", constant(float(alpha)), binary("-", call("exp", below), constant(1.0), FLOAT), FLOAT)
    e = call("where", call("gt", a, constant(0.0), kind=BOOL), a, below)
    return e if scale == 1 else binary("*", constant(float(scale)), e, FLOAT)


# ---- choice ----------------------------------------------------------------------------------------------------------


def _extreme(name, t, node, a, b):
    """fmax and fmin leave a NaN out, as max and min of kernels do; the others give it."""
    a, b = _pair(node, a, b)
    pick = min if name == "min" else max
    lo, hi = pick(a.lo, b.lo), pick(a.hi, b.hi)
    if kind_of(node.dtype) != FLOAT or node.operator in ("fmax", "fmin"):
        return call(name, a, b, kind=kind_of(node.dtype), lo=lo, hi=hi)
    if a.value is not None:
        a, b = b, a
    a, b = t.once(a), b if b.value is not None else t.once(b)
    takes_b = call("lt" if name == "max" else "gt", a, b, kind=BOOL)
    if b.value is None:
        takes_b = either(takes_b, call("ne", b, b, kind=BOOL))
    return call("where", takes_b, b, a, lo=lo, hi=hi)


@rule("maximum", "fmax", "max", "minimum", "fmin", "min")
def _extremes(t, node, a, b):
    return _extreme("max" if "max" in node.operator else "min", t, node, a, b)


@rule("clamp", "clip", "clamp_min", "clamp_max", "hardtanh")
def _clamp(t, node, a, min=None, max=None):
    if node.operator == "clamp_max":
        min, max = None, min
    if min is None or max is None:
        return _extreme("max" if max is None else "min", t, node, a, min if max is None else max)
    if kind_of(node.dtype) == FLOAT:
        return _extreme("min", t, node, _extreme("max", t, node, a, min), max)
    a, low = _pair(node, a, min)
    a, high = _pair(node, a, max)
    lo, hi = (v if v < high.hi else high.hi for v in (a.lo if a.lo > low.lo else low.lo,
                                                     a.hi if a.hi > low.hi else low.hi))  # fmt: skip
    return call("clamp", a, low, high, kind=kind_of(node.dtype), lo=lo, hi=hi)


@rule("where")
def _where(t, node, condition, a, b):
    condition, a, b = truth(expr(condition)), expr(a), expr(b)
    if condition.value is not None:
        return as_kind(a if condition.value else b, kind_of(node.dtype))
    if kind_of(node.dtype) == BOOL:
        condition = t.once(condition)
        return either(both(condition, truth(a)), both(_not(condition), truth(b)))
    a, b = _pair(node, a, b)
    return call("where", condition, a, b, kind=kind_of(node.dtype), lo=min(a.lo, b.lo), hi=max(a.hi, b.hi))


def _comparison(name):
    def apply(t, node, a, b):
        a, b = number(expr(a)), number(expr(b))
        if a.kind == FLOAT or b.kind == FLOAT:
            a, b = (constant(float(e.value)) if e.value is not None else e for e in (a, b))
        return call(name, a, b, kind=BOOL, lo=0, hi=1)

    return apply


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    RULES[_name] = _comparison(_name)


@rule("isnan")
def _isnan(t, node, a):
    return constant(False) if a.kind != FLOAT else call("ne", t.once(a), t.once(a), kind=BOOL)


@rule("isinf")
def _isinf(t, node, a):
    return constant(False) if a.kind != FLOAT else call("eq", call("abs", a), constant(_INF), kind=BOOL)


# ---- logic -----------------------------------------------------------------------------------------------------------


def both(a: Expr, b: Expr) -> Expr:
    for one, other in ((a, b), (b, a)):
        if one.value is not None:
            return other if one.value else one
    return binary("&", a, b, BOOL, 0, 1)


def either(a: Expr, b: Expr) -> Expr:
    for one, other in ((a, b), (b, a)):
        if one.value is not None:
            return one if one.value else other
    return binary("|", a, b, BOOL, 0, 1)


def _not(a: Expr) -> Expr:
    return constant(not a.value) if a.value is not None else prefix("~", a, BOOL, 0, 1)


def _xor(a: Expr, b: Expr) -> Expr:
    for one, other in ((a, b), (b, a)):
        if one.value is not None:
            return _not(other) if one.value else other
    return binary("~", a, b, BOOL, 0, 1)


_LOGIC = {"and": both, "or": either, "xor": _xor}


@rule("logical_and", "logical_or", "logical_xor")
def _logical(t, node, a, b):
    return _LOGIC[node.operator.partition("_")[2]](truth(expr(a)), truth(expr(b)))


@rule("logical_not")
def _logical_not(t, node, a):
    return _not(truth(a))


@rule("bitwise_not")
def _bitwise_not(t, node, a):
    return _not(a) if a.kind == BOOL else prefix("~", t.exact(node, a), INT, -a.hi - 1, -a.lo - 1)


@rule("bitwise_and", "bitwise_or", "bitwise_xor", "__and__", "__or__", "__xor__")
def _bitwise(t, node, a, b):
    a, b = expr(a), expr(b)
    word = node.operator.strip("_").removeprefix("bitwise_")
    if kind_of(node.dtype) == BOOL:
        return _LOGIC[word](a, b)
    a, b = (t.exact(node, number(e)) for e in (a, b))
    symbol = {"and": "&", "or": "|", "xor": "~"}[word]
    if a.lo < 0 or b.lo < 0:
        return binary(symbol, a, b, INT)
    most = max(a.hi, b.hi)
    hi = min(a.hi, b.hi) if word == "and" else _INF if most == _INF else 2 ** int(most).bit_length() - 1
    return binary(symbol, a, b, INT, 0, hi)


@rule("bitwise_left_shift", "__lshift__", "bitwise_right_shift", "__rshift__")
def _shift(t, node, a, b):
    a, b = (t.exact(node, number(expr(e))) for e in (a, b))
    if b.lo < 0 or b.hi > 31:
        refuse(node.place, "a shift by what may be below 0 or above 31; keep it within, as by % 32 or clamp")
    if "left" in node.operator or node.operator == "__lshift__":
        return binary("<<", a, b, INT, *_ends(a.lo * 2**b.lo, a.lo * 2**b.hi, a.hi * 2**b.lo, a.hi * 2**b.hi))
    if a.lo >= 0:
        return binary(">>", a, b, INT, 0, a.hi)
    if b.hi > 30:
        refuse(node.place, "a shift by 31 of what may be negative; shift by at most 30")
    step = constant(1 << b.value) if b.value is not None else binary("<<", constant(1), b, INT)
    return binary("//", a, step, INT, a.lo, a.hi)  # keeps the sign, as in torch


# ---- forms -----------------------------------------------------------------------------------------------------------


@rule("_to_copy", "clone", "alias", "lift_fresh", "lift_fresh_copy", "view", "_unsafe_view", "reshape", "expand",
      "squeeze", "unsqueeze", "permute", "transpose", "contiguous", "detach_copy", "positive", "t", "sum",
      "any", "all", "amax", "amin", "mean", "prod", "copy")  # fmt: skip
def _same(t, node, a, *rest, **named):
    """Of one element, which these leave as it is; casts do what their dtype says."""
    if node.operator == "copy":
        a = expr(rest[0])
    if node.dtype in (torch.float16, torch.bfloat16) and a.kind != BOOL and node.operator == "_to_copy":
        refuse(node.place, f"a cast to {str(node.dtype).removeprefix('torch.')}: scores are f32 in kernels, and are "
               "not rounded to fewer digits; leave the cast out")  # fmt: skip
    kind = kind_of(node.dtype)
    if node.operator in ("any", "all"):
        return truth(a)
    if kind == INT and a.kind == FLOAT:
        e = call("i32", a, kind=INT)
        inside = abs(a.lo) < 2**31 and abs(a.hi) < 2**31
        return e.within(math.trunc(a.lo), math.trunc(a.hi)) if inside else e.within(0 if a.lo >= 0 else -_INF, _INF)
    return as_kind(a, kind)


@rule("detach")
def _detach(t, node, a):
    return call("detach", a, kind=a.kind, lo=a.lo, hi=a.hi) if a.kind == FLOAT and a.value is None else a


@rule("full", "scalar_tensor", "new_full", "full_like", "ones", "new_ones", "ones_like", "zeros", "new_zeros",
      "zeros_like", "empty_like")  # fmt: skip
def _filled(t, node, *args, fill_value=None, **named):
    name = node.operator
    if name == "empty_like":
        refuse(node.place, "empty_like: a value that nobody has set; write zeros_like")
    if "full" in name or name == "scalar_tensor":
        value = args[-1] if fill_value is None else fill_value
    else:
        value = 1 if "ones" in name else 0
    return as_kind(constant(value), kind_of(node.dtype)) if not isinstance(value, Expr) else value


