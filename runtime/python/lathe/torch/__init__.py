"""Specs in PyTorch: functions with gradients, and optimizers.

    import lathe, lathe.torch
    attend = lathe.torch.wrap("causal", layout="bshd")      # or an Op of lathe.load, lathe.compile
    o = attend(q, k, v)                                     # autograd, torch.compile, autocast, checkpoint, DDP
    optimizer = lathe.torch.AdamW(model.parameters())       # or Lion: one launch a step
"""

from ._function import Function, call, wrap
from ._sdpa import activate, sdpa
from .optim import AdamW, Lion

__all__ = ["AdamW", "Function", "Lion", "activate", "call", "flex_attention", "sdpa", "spec_of", "wrap"]


def __getattr__(name: str):
    """FlexAttention's part is imported where it is asked for: it takes torch's own, which is slow to import."""
    if name in ("flex_attention", "spec_of"):
        from . import flex

        return getattr(flex, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
