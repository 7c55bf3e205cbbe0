"""Specs in PyTorch: functions with gradients, and optimizers.

    import lathe, lathe.torch
    attend = lathe.torch.wrap("causal", layout="bshd")      # or an Op of lathe.load, lathe.compile
    o = attend(q, k, v)                                     # autograd, torch.compile, autocast, checkpoint, DDP
    optimizer = lathe.torch.AdamW(model.parameters())       # or Lion: one launch a step
"""

from ._function import Function, call, wrap
from .optim import AdamW, Lion

__all__ = ["AdamW", "Function", "Lion", "call", "wrap"]
