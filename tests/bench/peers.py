"""peers.py: what a row is compared with: torch's fused attention and FlexAttention, as functions of a problem; where
they are asked for (--peers), FlashAttention-4 (fa4) and FlexAttention by its kernels (flex_fa4), which need wheels that
torch does not bring.
"""

import importlib
import re

import torch
import torch._dynamo
import torch.nn.functional as F

import cases


def attempt(make):
    """(call, None), or (None, why) of a peer that does not run here: it is left out, with its reason."""
    try:
        call = make()
        call()
        torch.cuda.synchronize()
        return call, None
    except Exception as error:  # noqa: BLE001: any reason a peer has
        lines = [line.strip("= ") for line in re.sub("\x1b\\[[0-9;]*m", "", str(error)).splitlines()]
        return None, " ".join([f"{type(error).__name__}:", *[line for line in lines if line][:2]])[:300]


def missing(names):
    """What these peers of --peers need that is not here, in a sentence, or None."""
    try:
        if names:
            importlib.import_module("flash_attn.cute.interface")
    except Exception as error:  # noqa: BLE001: a library or a driver that a wheel needs has errors of its own
        why = str(error).partition("\n")[0]
        return f"{', '.join(names)}: the wheel flash-attn-4, or one it needs, cannot be imported ({why})"
    return None


def sdpa(problem, backend):
    """backend: "FLASH_ATTENTION" or "CUDNN_ATTENTION"."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    q, k, v = (problem.tensors[name] for name in "qkv")
    grouped = {"enable_gqa": True} if problem.h != problem.h_kv else {}
    causal = problem.name == "causal"

    def call():
        with sdpa_kernel(getattr(SDPBackend, backend)):
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal, **grouped)
    return call


def flex(problem, backend=None):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    score, mask = cases.flex_mods(problem)
    block_mask = None
    if mask:
        batch = problem.b if problem.inputs else None
        block_mask = create_block_mask(mask, batch, None, problem.q, problem.kv, device="cuda")
    torch._dynamo.reset()  # each variant compiles afresh, none meets the limit on recompilations
    compiled = torch.compile(flex_attention, dynamic=False)
    q, k, v = (problem.tensors[name] for name in "qkv")

    def call():
        return compiled(q, k, v, score_mod=score, block_mask=block_mask, enable_gqa=problem.h != problem.h_kv,
                        kernel_options={"BACKEND": backend} if backend else None)
    return call


def further(names, problem):
    """Of --peers, beside a forward pass; operators that FlexAttention cannot write they cannot, either."""
    makers = {"fa4": lambda: importlib.import_module("fa4").forward(problem),
              "flex_fa4": lambda: flex(problem, "FLASH")}
    return {name: makers[name] for name in names if problem.variant.flex}


def fused(problem):
    """cuDNN first: what torch offers on any Hopper machine."""
    return {"cudnn": lambda: sdpa(problem, "CUDNN_ATTENTION"), "flash": lambda: sdpa(problem, "FLASH_ATTENTION")}


# ---- backward: the graph is made once, and its gradients are asked for again and again -----------------------

def _gradients(gradient, inputs, attend):
    """(dq, dk, dv, ...) of attend(q, k, v, ...)."""
    with torch.enable_grad():
        leaves = [t.detach().clone().requires_grad_(True) for t in inputs]
        out = attend(*leaves)
    return lambda: torch.autograd.grad(out, leaves, gradient.do, retain_graph=True)


def sdpa_grad(gradient, backend):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    problem = gradient.problem
    grouped = {"enable_gqa": True} if problem.h != problem.h_kv else {}

    def attend(q, k, v):
        with sdpa_kernel(getattr(SDPBackend, backend)):
            return F.scaled_dot_product_attention(q, k, v, is_causal=problem.name == "causal", **grouped)
    return _gradients(gradient, [problem.tensors[name] for name in "qkv"], attend)


def flex_grad(gradient, backend=None, learn=True):
    """learn: gradients of what the variant learns, too."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    problem = gradient.problem
    torch._dynamo.reset()
    compiled = torch.compile(flex_attention, dynamic=False)
    given, names = problem.inputs, gradient.learned if learn else []

    def attend(q, k, v, *learned):
        problem.inputs = {**given, **dict(zip(names, learned))}
        score, mask = cases.flex_mods(problem)
        problem.inputs = given
        batch = problem.b if given else None
        block_mask = create_block_mask(mask, batch, None, problem.q, problem.kv, device="cuda") if mask else None
        return compiled(q, k, v, score_mod=score, block_mask=block_mask, enable_gqa=problem.h != problem.h_kv,
                        kernel_options={"BACKEND": backend} if backend else None)
    return _gradients(gradient, [problem.tensors[name] for name in "qkv"] + [given[name] for name in names], attend)


def further_grad(names, problem):
    """Of --peers, beside a backward pass: they have no gradients of what a score mod learns.

    Their names say so: fa4 -dtable.
    """
    makers = {"fa4": lambda g: importlib.import_module("fa4").gradients(g),
              "flex_fa4": lambda g: flex_grad(g, "FLASH", learn=False)}
    without = "".join(f" -d{name}" for name in problem.variant.learned)
    return {name + without: makers[name] for name in names}


def rowwise_grad(spec, x, dy, inputs):
    names = list(inputs)
    with torch.enable_grad():
        leaves = [t.detach().clone().requires_grad_(True) for t in [x, *inputs.values()]]
        out = cases.rowwise_torch(spec, leaves[0], dict(zip(names, leaves[1:])))
    return lambda: torch.autograd.grad(out, leaves, dy, retain_graph=True)
