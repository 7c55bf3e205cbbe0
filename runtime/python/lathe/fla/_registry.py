"""FLA's registry of backends: which of its entry points run on ours, and why a call of one did not.

FLA asks `NAME_verifier(...)` for (bool, reason) before each call of an entry point NAME; where it says no, the next
backend is asked, FLA's own kernels last. FLA logs the first reason of each entry point.
"""

from __future__ import annotations

import contextlib
import functools
import importlib

from . import _rules
from ._call import op

_ENTRY_POINTS = {  # where FLA has them: the name of an operation's registry, or the module of a function with its own
    "gated_delta_rule": ("chunk_gated_delta_rule",),
    "kda": ("fused_recurrent_kda_fwd",),
    "fla.ops.kda": ("chunk_kda",),
    "fla.ops.simple_gla": ("fused_chunk_simple_gla", "fused_recurrent_simple_gla", "parallel_simple_gla"),
}
_refused: dict[str, str] = {}


def refused() -> dict[str, str]:
    """Why FLA's functions were not run by ours, by name: the last reason of each."""
    return dict(_refused)


def register(priority: int = 4) -> None:
    """FLA's own functions and layers run on ours, where FLA asks a registry and a kernel of ours serves the call.

    priority: of backends, the lower the earlier. FlashQLA and FlashKDA, where they are installed, have 3, and come
    first; 2 is before them. The environment's FLA_LATHE=0 turns it off again, at any time.
    """
    try:
        from fla import backends
    except ImportError as error:
        raise ImportError(
            "lathe.fla.register: needs flash-linear-attention 0.6 or newer, whose fla.backends has the registry; "
            f"without it, take the functions of lathe.fla by name ({error})"
        ) from error
    ours = _backend(backends.BaseBackend, int(priority))
    for place, names in _ENTRY_POINTS.items():
        if place.startswith("fla."):
            module = importlib.import_module(place)
            for name in names:
                # One that this release does not dispatch stays FLA's own.
                with contextlib.suppress(AttributeError, KeyError):
                    backends.register(getattr(module, name))(ours)
        else:
            backends.register(place)(ours)


def _backend(base, priority: int):
    """A class as FLA's registry wants it: for each entry point a method, and one that says whether it will do."""
    body = {"backend_type": "lathe", "package_name": "lathe", "env_var": "FLA_LATHE", "priority": priority}
    for name in (n for names in _ENTRY_POINTS.values() for n in names):
        ours = _of_name(name)
        body[name] = staticmethod(ours)
        body[f"{name}_verifier"] = staticmethod(functools.partial(_verify, name, ours))
    return type("LatheBackend", (base,), body)


def _of_name(name: str):
    from .. import fla

    return globals().get(name) or getattr(fla, name)


def _verify(name: str, ours, *args, **named) -> tuple[bool, str | None]:
    try:
        reason = ours.call_of(*args, **named).refusal()
    except Exception as error:  # of arguments that no kernel takes: FLA will say so, or knows more of them
        reason = str(error)
    if reason is not None:
        _refused[name] = reason
    return reason is None, reason


@op(_rules.kda)
def fused_recurrent_kda_fwd(q, k, v, g, beta, A_log=None, dt_bias=None, initial_state=None, scale=None,
                            output_final_state=False, inplace_final_state=True, state_v_first=False, cu_seqlens=None,
                            ssm_state_indices=None, num_accepted_tokens=None, use_qk_l2norm_in_kernel=False,
                            use_gate_in_kernel=False, use_beta_sigmoid_in_kernel=False, allow_neg_eigval=False,
                            lower_bound=None, out=None, **more):  # fmt: skip
    """What FLA's fused_recurrent_kda calls."""
