"""What each function of FLA computes, in our words: inputs of a spec, with their dims, and its formulas.

`a` holds the arguments of a call by FLA's names; what a function does not have, or was not given, is None.
"""

from __future__ import annotations

import functools

import torch

from .. import _library as c

_INDEX = {"b": "at.b", "h": "at.h", "t": "at.t", "d": "at.i", "d_v": "at.j"}
_HEAD = ("b", "h", "t")
_KEY = ("b", "h", "t", "d")
_VALUE = ("b", "h", "t", "d_v")


@functools.lru_cache(maxsize=256)
def _read(name: str, dims) -> str:
    """An element of an input, in a formula."""
    return f"x.{name}({', '.join(_INDEX[d] for d in dims)})"


def _decayed(a, **dims) -> dict:
    """Inputs that are logarithms of decays: their sum counts."""
    inputs = {n: (a[n], *of) for n, of in dims.items() if a[n] is not None}
    return {"inputs": inputs, "decay": " + ".join(_read(n, dims[n]) for n in inputs)}


def plain(a) -> dict:
    return {}


def retention(a) -> dict:
    return {"decay": "log(1.0 - exp2(-5.0 - at.h))"}


def lightning(a) -> dict:
    """The depth is a number that a launch takes: one kernel serves all layers."""
    return {"inputs": {"depth": (a.layer_idx / a.num_layers,)}, "decay": "-8.0 * at.h / at.n_h * (1.0 - x.depth)"}


def simple_gla(a) -> dict:
    return _decayed(a, g=_HEAD, g_gamma=("h",))


def gla(a) -> dict:
    if a.gk is not None and a.gv is not None:
        raise c.UnsupportedError(
            "lathe.fla: gk beside gv, decays of key and of value channels at once, are not served; give one of them")
    return _decayed(a, g=_KEY, gk=_KEY, gv=_VALUE)


def rwkv6(a) -> dict:
    rule = _decayed(a, w=_KEY)
    rule["inputs"]["u"] = (a.u, "h", "d")
    return {**rule, "bonus": _read("u", ("h", "d"))}


def delta_rule(a) -> dict:
    return _with_delta(a, {"inputs": {}})


def gated_delta_rule(a) -> dict:
    if not a.use_gate_in_kernel:
        return _with_delta(a, _decayed(a, g=_HEAD, gk=_KEY, gv=_VALUE))
    if a.g is None or a.gk is not None or a.gv is not None:
        raise c.ArgumentError("use_gate_in_kernel: makes the decay of g, which is missing or has gk or gv beside it")
    return _with_delta(a, _gated(a, _HEAD, a.dt_bias, ("h",)))


def kda(a) -> dict:
    if not a.use_gate_in_kernel:
        return _with_delta(a, _decayed(a, g=_KEY))
    bias = None if a.dt_bias is None else a.dt_bias.reshape(a.v.shape[2], -1)
    return _with_delta(a, _gated(a, _KEY, bias, ("h", "d")))


def gated_delta_product(a) -> dict:
    """A token makes n updates of the state, each with its k, v and beta, and is decayed once."""
    n = int(a.num_householder)
    if a.k.shape[1] != n * a.q.shape[1]:
        raise c.ArgumentError(
            f"argument 'k': expected {n * a.q.shape[1]} steps of {a.q.shape[1]} tokens, given {a.k.shape[1]}")
    if a.beta.shape[1] != a.k.shape[1]:
        raise c.ArgumentError(
            f"argument 'beta': expected one for each of {a.k.shape[1]} steps, given {a.beta.shape[1]}")
    rule = _decayed(a, g=_HEAD)
    rule["inputs"]["beta"] = (a.beta.unflatten(1, (-1, n)).transpose(2, 3), *_HEAD, n)
    return {**rule, "delta": "x.beta(at.b, at.h, at.t, at.update)", "updates": n}


def _dplr(a, decay) -> dict:
    """a reads the state before it is decayed, and b writes what it has read."""
    rule = _decayed(a, **decay) if decay else {"inputs": {}}
    rule["inputs"] |= {"reads": (a.a, *_KEY), "writes": (a.b, *_KEY)}
    return {**rule, "reader": _read("reads", _KEY), "writer": _read("writes", _KEY), "read_first": True}


def dplr(a) -> dict:
    return _dplr(a, {"gk": _KEY})


def iplr(a) -> dict:
    return _dplr(a, {})


def rwkv7(a) -> dict:
    return _dplr(a, {"w": _KEY})


def rwkv7_by_rate(a) -> dict:
    """kk is removed at the rate a."""
    rule = _decayed(a, w=_KEY)
    rule["inputs"] |= {"kk": (a.kk, *_KEY), "rate": (a.a, *_KEY)}
    kk = _read("kk", _KEY)
    return {**rule, "reader": f"-{kk}", "writer": f"{kk} * {_read('rate', _KEY)}", "read_first": True}


def comba(a) -> dict:
    """p, in the place of the key, reads the state before it is decayed; where keys are of length 1, so is p."""
    rule = _with_delta(a, _decayed(a, g=_HEAD))
    if a.p is None:
        return {**rule, "read_first": True}
    p = a.p
    if a.use_qk_l2norm_in_kernel:
        wide = p.to(torch.promote_types(p.dtype, torch.float32))
        p = (wide * (wide.square().sum(-1, keepdim=True) + 1e-6).rsqrt()).to(p.dtype)
    rule["inputs"]["p"] = (p, "b", "h_k", "t", "d")
    return {**rule, "reader": "x.p(at.b, at.h_k, at.t, at.i)", "read_first": True}


def gdn2(a) -> dict:
    """b erases, a gate for each key channel; w writes, one for each value channel."""
    rule = _decayed(a, g=_KEY)
    rule["inputs"] |= {"erase": (a.b, *_KEY), "write": (a.w, *_VALUE)}
    return {**rule, "delta": "1.0", "reader": f"{_read('erase', _KEY)} * k",
            "value": "x.write(at.b, at.h, at.t, at.i) * v"}  # fmt: skip


def _with_delta(a, rule) -> dict:
    if a.allow_neg_eigval and not a.use_beta_sigmoid_in_kernel:
        raise c.ArgumentError("allow_neg_eigval: goes with use_beta_sigmoid_in_kernel, whose result it doubles")
    beta = "1.0"
    if a.beta is not None:
        rule["inputs"]["beta"] = (a.beta, *_HEAD)
        beta = _read("beta", _HEAD)
    if a.use_beta_sigmoid_in_kernel:
        beta = f"{'2.0 * ' if a.allow_neg_eigval else ''}sigmoid({beta})"
    return {**rule, "delta": beta}


def _gated(a, dims, bias, dims_of_bias) -> dict:
    """The decay of Mamba-2 made of g, or the one of KDA between lower_bound and 0."""
    inputs = {"g": (a.g, *dims)}
    g, slope = _read("g", dims), ""
    if bias is not None:
        inputs["dt_bias"] = (bias, *dims_of_bias)
        g = f"({g} + {_read('dt_bias', dims_of_bias)})"
    if a.A_log is not None:
        inputs["A_log"] = (a.A_log.reshape(-1), "h")
        slope = f"exp({_read('A_log', ('h',))})"
    if a.lower_bound is not None:
        return {"inputs": inputs, "decay": f"{float(a.lower_bound)!r} * sigmoid({slope + ' * ' if slope else ''}{g})"}
    if not slope:
        raise c.ArgumentError("A_log: missing; with use_gate_in_kernel the decay is -exp(A_log) softplus(g + dt_bias)")
    return {"inputs": inputs, "decay": f"-{slope} * softplus({g})"}
