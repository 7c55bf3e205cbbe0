"""peers.py: what a row is compared with: torch's fused attention and FlexAttention, as functions of a problem."""

import torch
import torch._dynamo
import torch.nn.functional as F

import cases


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


def flex(problem):
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
        return compiled(q, k, v, score_mod=score, block_mask=block_mask, enable_gqa=problem.h != problem.h_kv)
    return call


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


def flex_grad(gradient):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    problem = gradient.problem
    torch._dynamo.reset()
    compiled = torch.compile(flex_attention, dynamic=False)
    given = problem.inputs

    def attend(q, k, v, *learned):
        problem.inputs = {**given, **dict(zip(gradient.learned, learned))}
        score, mask = cases.flex_mods(problem)
        problem.inputs = given
        batch = problem.b if given else None
        block_mask = create_block_mask(mask, batch, None, problem.q, problem.kv, device="cuda") if mask else None
        return compiled(q, k, v, score_mod=score, block_mask=block_mask)
    return _gradients(gradient, [problem.tensors[name] for name in "qkv"] + [given[name] for name in gradient.learned], attend)


def rowwise_grad(spec, x, dy, inputs):
    names = list(inputs)
    with torch.enable_grad():
        leaves = [t.detach().clone().requires_grad_(True) for t in [x, *inputs.values()]]
        out = cases.rowwise_torch(spec, leaves[0], dict(zip(names, leaves[1:])))
    return lambda: torch.autograd.grad(out, leaves, dy, retain_graph=True)
