"""fa4.py: FlashAttention-4 (the wheel flash-attn-4) as a peer: its functions, with score mods in CuTe.

It is given tensors in the layout that it likes best, [b, s, h, d], and documents as sequences of their own: what its
users do.
"""

import cutlass
import cutlass.cute as cute
import torch
from flash_attn.cute import utils
from flash_attn.cute.interface import flash_attn_func, flash_attn_varlen_func

import cases


def value_at(table, head, place):
    """Where a mod reads tensors, a thread has one pair at a time in hand."""
    return utils.scalar_to_ssa(table[head[0], place[0]], cutlass.Float32)


def distance(q_idx, kv_idx):
    return (q_idx - kv_idx).to(cutlass.Float32)


def alibi(heads):
    @cute.jit
    def score(s, b, h, q_idx, kv_idx, seqlen_info, aux_tensors):
        return s - cute.math.exp2((h + 1).to(cutlass.Float32) * (-8.0 / heads), fastmath=True) * distance(q_idx, kv_idx)
    return score


@cute.jit
def alibi_slopes(s, b, h, q_idx, kv_idx, seqlen_info, aux_tensors):
    return s - value_at(aux_tensors[0], h, h - h) * distance(q_idx, kv_idx)


@cute.jit
def relative_bias(s, b, h, q_idx, kv_idx, seqlen_info, aux_tensors):
    """cases.bucket once more; 8 (log2(n / 8) / 4) is 2 log2(n) - 6, and all of it is positive."""
    signed = q_idx - kv_idx
    n = cute.where(signed < 0, 0 - signed, signed)
    exact = n < cases.EXACT
    wide = cute.where(exact, cute.full_like(n, cases.EXACT), n).to(cutlass.Float32)
    far = (cute.math.log2(wide, fastmath=True) * 2.0 + (cases.EXACT - 6 + 1e-3)).to(cutlass.Int32)
    far = cute.where(far < 2 * cases.EXACT, far, cute.full_like(n, 2 * cases.EXACT - 1))
    after = cute.where(signed < 0, cute.full_like(n, 2 * cases.EXACT), cute.full_like(n, 0))
    return s + value_at(aux_tensors[0], h, cute.where(exact, n, far) + after)


@cute.jit
def added(grad, s, b, h, q_idx, kv_idx, seqlen_info, aux_tensors):
    """The derivative of mods that add to a score."""
    return grad


def options(problem):
    """Of flash_attn_func: what makes it the variant."""
    of = {"full": {}, "causal": {}, "document": {}, "softcap": {"softcap": cases.SOFTCAP},
          "window": {"window_size": (cases.WINDOW - 1, 0)}}
    mods = {"alibi": alibi(problem.h), "alibi_slopes": alibi_slopes, "relative_bias": relative_bias}
    if problem.name in mods:
        of[problem.name] = {"score_mod": mods[problem.name], "score_mod_bwd": added}
        if problem.inputs:
            (table,) = problem.inputs.values()
            of[problem.name]["aux_tensors"] = [table.reshape(problem.h, -1)]
    if problem.name not in of:
        raise NotImplementedError(f"flash_attn_func has no option that says {problem.name}")
    return {"causal": problem.variant.live is not None, **of[problem.name]}


def to_tokens(problem, t):
    t = t.transpose(1, 2).contiguous()
    return t.reshape(-1, *t.shape[2:]) if problem.name == "document" else t


def to_heads(problem, t):
    return t.reshape(problem.b, -1, *t.shape[-2:]).transpose(1, 2)


def function_of(problem):
    """(q, k, v) -> o, tokens first."""
    more = options(problem)
    if problem.name == "document":
        length = cases.document_length(problem)
        starts = [b * problem.kv + at for b in range(problem.b) for at in range(0, problem.kv, length)]
        cu = torch.tensor([*starts, problem.b * problem.kv], dtype=torch.int32, device="cuda")
        more.update(cu_seqlens_q=cu, cu_seqlens_k=cu, max_seqlen_q=length, max_seqlen_k=length)
    run = flash_attn_varlen_func if problem.name == "document" else flash_attn_func
    return lambda q, k, v: run(q, k, v, **more)[0]


def forward(problem):
    attend, given = function_of(problem), [to_tokens(problem, problem.tensors[name]) for name in "qkv"]
    return lambda: to_heads(problem, attend(*given))


def gradients(gradient):
    """dq, dk and dv: it has none of what a score mod reads."""
    problem = gradient.problem
    with torch.enable_grad():
        leaves = [to_tokens(problem, problem.tensors[name]).requires_grad_(True) for name in "qkv"]
        out = function_of(problem)(*leaves)
    do = to_tokens(problem, gradient.do)
    return lambda: [to_heads(problem, g) for g in torch.autograd.grad(out, leaves, do, retain_graph=True)]
