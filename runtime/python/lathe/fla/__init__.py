"""flash-linear-attention's functions on kernels of Lathe: by its names, with its arguments; it need not be installed.

    from lathe.fla import chunk_gated_delta_rule
    o, state = chunk_gated_delta_rule(q, k, v, g, beta, output_final_state=True)    # q [b, t, h, d]

    import lathe.fla
    lathe.fla.register()        # FLA's own functions and models run on ours, where FLA has a registry for them

chunk_* and fused_recurrent_* are one here: the number of tokens says which kernel there is. Every argument that is a
tensor of floats has its gradient, initial_state included, and so has the final state. v may have more heads than q
and k, a multiple, and g and beta have those of v. What is refused says so with a sentence.

The fused_recurrent_* take what servers give, too, without gradients: inplace_final_state=True writes the last states
over initial_state; ssm_state_indices [n, tokens] or [n] makes that a pool, in which the state behind each token goes to
its slot, and a sequence begins with that of its first token, or of number num_accepted_tokens [n]. A negative slot is
none.
"""

from __future__ import annotations

import torch

from .. import _library as c
from . import _rules
from ._call import op
from ._registry import refused, register
from ._wkv import wkv

__all__ = [
    "chunk_comba", "chunk_delta_rule", "chunk_dplr_delta_rule", "chunk_gated_delta_product",
    "chunk_gated_delta_rule", "chunk_gdn2", "chunk_gsa", "fused_recurrent_gated_delta_product", "fused_recurrent_gsa",
    "chunk_iplr_delta_rule", "chunk_rwkv7", "fused_mul_recurrent_rwkv7", "fused_recurrent_comba",
    "fused_recurrent_dplr_delta_rule", "fused_recurrent_gdn2", "fused_recurrent_iplr_delta_rule",
    "fused_recurrent_rwkv7", "chunk_gdn", "chunk_gla", "chunk_kda", "chunk_lightning_attn",
    "chunk_linear_attn", "chunk_retention", "chunk_rwkv6", "chunk_simple_gla", "fused_chunk_linear_attn",
    "fused_chunk_retention", "fused_chunk_simple_gla", "fused_recurrent_delta_rule",
    "fused_recurrent_gated_delta_rule", "fused_recurrent_gdn", "fused_recurrent_gla", "fused_recurrent_kda",
    "fused_recurrent_lightning_attn", "fused_recurrent_linear_attn", "fused_recurrent_retention",
    "fused_recurrent_rwkv4",
    "fused_recurrent_rwkv6", "fused_recurrent_simple_gla", "parallel_retention", "parallel_simple_gla", "refused",
    "register",
]  # fmt: skip


# ---- no decay, or one that no tensor tells ---------------------------------------------------------------------------


@op(_rules.plain)
def chunk_linear_attn(q, k, v, scale=None, initial_state=None, output_final_state=False, normalize=True,
                      cu_seqlens=None):  # fmt: skip
    """normalize: o is divided by scale * q * (sum of keys) + 1e-10, and a state is (state, sums [n, 1, h, d])."""


fused_chunk_linear_attn = chunk_linear_attn


@op(_rules.plain)
def fused_recurrent_linear_attn(q, k, v, scale=None, initial_state=None, output_final_state=False, reverse=False,
                                normalize=False, cu_seqlens=None):  # fmt: skip
    """See chunk_linear_attn. reverse: from the last token to the first."""


@op(_rules.retention)
def chunk_retention(q, k, v, scale=None, initial_state=None, output_final_state=False, cu_seqlens=None, **more):
    """Head h keeps 1 - 2^(-5 - h) of its state."""


fused_chunk_retention = chunk_retention


@op(_rules.retention)
def fused_recurrent_retention(q, k, v, scale=None, initial_state=None, output_final_state=False, reverse=False,
                              state_v_first=False, cu_seqlens=None, **more):  # fmt: skip
    """See chunk_retention."""


@op(_rules.retention)
def parallel_retention(q, k, v, scale=None, output_attentions=False, cu_seqlens=None):
    """See chunk_retention. Weights are not returned, and the second result is None."""


@op(_rules.lightning)
def chunk_lightning_attn(q, k, v, layer_idx, num_layers, scale=None, initial_state=None, output_final_state=False,
                         cu_seqlens=None, **more):  # fmt: skip
    """The logarithm of the decay of head h of n is -8 h / n (1 - layer_idx / num_layers)."""


@op(_rules.lightning)
def fused_recurrent_lightning_attn(q, k, v, layer_idx, num_layers, scale=None, initial_state=None,
                                   output_final_state=False, reverse=False, cu_seqlens=None):  # fmt: skip
    """See chunk_lightning_attn."""


# ---- decays ----------------------------------------------------------------------------------------------------------


@op(_rules.simple_gla)
def chunk_simple_gla(q, k, v, g=None, g_gamma=None, scale=None, initial_state=None, output_final_state=False,
                     state_v_first=False, cu_seqlens=None, cu_seqlens_cpu=None, **more):  # fmt: skip
    """g [b, t, h], g_gamma [h]: logarithms of decays, at most 0, whose sum counts."""


@op(_rules.simple_gla)
def fused_chunk_simple_gla(q, k, v, g=None, g_gamma=None, scale=None, initial_state=None, output_final_state=False,
                           cu_seqlens=None):  # fmt: skip
    """See chunk_simple_gla."""


@op(_rules.simple_gla)
def fused_recurrent_simple_gla(q, k, v, g=None, g_gamma=None, scale=None, initial_state=None,
                               output_final_state=False, reverse=False, state_v_first=False, cu_seqlens=None,
                               **more):  # fmt: skip
    """See chunk_simple_gla. reverse: from the last token to the first."""


@op(_rules.simple_gla)
def parallel_simple_gla(q, k, v, g=None, scale=None, output_attentions=False, cu_seqlens=None, cu_seqlens_cpu=None):
    """See chunk_simple_gla. Weights are not returned, and the second result is None."""


@op(_rules.gla)
def chunk_gla(q, k, v, g, scale=None, initial_state=None, output_final_state=False, state_v_first=False,
              cu_seqlens=None, cu_seqlens_cpu=None):  # fmt: skip
    """g [b, t, h, d]: the logarithm of the decay of each key channel, at most 0."""


@op(_rules.gla)
def fused_recurrent_gla(q, k, v, gk=None, gv=None, scale=None, initial_state=None, output_final_state=False,
                        reverse=False, state_v_first=False, cu_seqlens=None, **more):  # fmt: skip
    """gk [b, t, h, d] or gv [b, t, h, d_v]: logarithms of decays of key or of value channels."""


def fused_recurrent_gsa(q, k, v, s, g=None, scale=None, initial_state=None, output_final_state=False, reverse=False,
                        cu_seqlens=None):  # fmt: skip
    """Gated slot attention: s, g [b, t, h, m]: keys and values of m slots, and logarithms of their decays. Two calls of
    gated linear attention: slots are the values of the first, and by the softmax of what that gives the keys of the
    second. A state is two. Without g, slots forget by their own sum, of all tokens of a batch."""
    if k.shape[2] != q.shape[2] or s.shape[2] != v.shape[2]:
        raise c.UnsupportedError("lathe.fla: gsa of fewer heads of k than of q, or of s than of v, is not served")
    if g is None and (cu_seqlens is not None or reverse):
        raise c.ArgumentError("g: missing; without it slots forget from the first token of a batch on to its last")
    if g is None:
        total = s.to(torch.promote_types(s.dtype, torch.float32)).logcumsumexp(1)
        g, s = torch.cat((total[:, :1], total[:, :-1]), 1) - total, (s - total).exp().to(k.dtype)
    first, second = initial_state if initial_state is not None else (None, None)
    named = {"output_final_state": output_final_state, "reverse": reverse, "cu_seqlens": cu_seqlens}
    o, keys = fused_recurrent_gla(q, k, s, gv=g, scale=scale, initial_state=first, **named)
    weights = o.to(torch.promote_types(o.dtype, torch.float32)).softmax(-1).to(o.dtype)
    o, values = fused_recurrent_gla(weights, s, v, gk=g, scale=1.0, initial_state=second, **named)
    return o, (keys, values) if output_final_state else None


def chunk_gsa(q, k, v, s, g=None, scale=None, initial_state=None, output_final_state=False, checkpoint_level=2,
              cu_seqlens=None, cu_seqlens_cpu=None):  # fmt: skip
    """See fused_recurrent_gsa. checkpoint_level is a hint to FLA's kernels."""
    return fused_recurrent_gsa(q, k, v, s, g, scale, initial_state, output_final_state, cu_seqlens=cu_seqlens)


@op(_rules.rwkv6)
def chunk_rwkv6(r, k, v, w, u, scale=None, initial_state=None, output_final_state=False, cu_seqlens=None,
                cu_seqlens_cpu=None, **more):  # fmt: skip
    """w [b, t, h, d]: the logarithm of the decay; u [h, d] weighs a token's own pair."""


@op(_rules.rwkv6)
def fused_recurrent_rwkv6(r, k, v, w, u, scale=None, initial_state=None, output_final_state=False, reverse=False,
                          cu_seqlens=None):  # fmt: skip
    """See chunk_rwkv6."""


def fused_recurrent_rwkv4(w, u, k, v, state):
    """w, u [c], k, v [b, t, c], state [b, 3, 1, c]: the decay is -e^w, u weighs a token's own pair, and a state is the
    weighted sum of v, that of weights, and the exponent that both are without. Returns o and the last state."""
    return wkv(w, u, k, v, state)


# ---- the delta rule --------------------------------------------------------------------------------------------------


@op(_rules.delta_rule)
def chunk_delta_rule(q, k, v, beta, scale=None, initial_state=None, output_final_state=False,
                     use_qk_l2norm_in_kernel=False, cu_seqlens=None, cu_seqlens_cpu=None, **more):  # fmt: skip
    """beta [b, t, h]: 0 to 2. use_qk_l2norm_in_kernel: rows of q and k are divided by their length."""


@op(_rules.delta_rule)
def fused_recurrent_delta_rule(q, k, v, beta=None, scale=None, initial_state=None, output_final_state=False,
                               use_qk_l2norm_in_kernel=False, cu_seqlens=None):  # fmt: skip
    """See chunk_delta_rule. Without beta it is 1."""


@op(_rules.gated_delta_rule)
def chunk_gated_delta_rule(q, k, v, g, beta, scale=None, initial_state=None, output_final_state=False,
                           use_qk_l2norm_in_kernel=False, use_beta_sigmoid_in_kernel=False, allow_neg_eigval=False,
                           state_v_first=False, cu_seqlens=None, cu_seqlens_cpu=None, chunk_indices=None,
                           cp_context=None, *, use_gate_in_kernel=False, A_log=None, dt_bias=None, **more):  # fmt: skip
    """g, beta [b, t, h of v]. use_gate_in_kernel: the decay is -exp(A_log [h]) softplus(g + dt_bias [h]);
    use_beta_sigmoid_in_kernel: beta is a logit, and allow_neg_eigval doubles what comes of it."""


@op(_rules.gated_delta_rule)
def fused_recurrent_gated_delta_rule(q, k, v, g=None, gk=None, gv=None, beta=None, scale=None, initial_state=None,
                                     output_final_state=False, use_qk_l2norm_in_kernel=False,
                                     use_gate_in_kernel=False, A_log=None, dt_bias=None,
                                     use_beta_sigmoid_in_kernel=False, allow_neg_eigval=False, state_v_first=False,
                                     cu_seqlens=None, **more):  # fmt: skip
    """See chunk_gated_delta_rule. gk [b, t, h, d], gv [b, t, h, d_v]: more decays, of key or of value channels."""


chunk_gdn = chunk_gated_delta_rule
fused_recurrent_gdn = fused_recurrent_gated_delta_rule


@op(_rules.kda)
def chunk_kda(q, k, v, g, beta, scale=None, initial_state=None, output_final_state=False,
              use_qk_l2norm_in_kernel=False, use_gate_in_kernel=False, use_beta_sigmoid_in_kernel=False,
              allow_neg_eigval=False, safe_gate=False, lower_bound=None, disable_recompute=False,
              return_intermediate_states=False, state_v_first=False, cu_seqlens=None, cu_seqlens_cpu=None,
              cp_context=None, use_graph=False, max_num_seqs=None, *, A_log=None, dt_bias=None, **more):  # fmt: skip
    """g [b, t, h of v, d], beta [b, t, h of v]. use_gate_in_kernel: the decay is -exp(A_log [h]) softplus(g + dt_bias
    [h * d]), or with lower_bound that times sigmoid(exp(A_log) (g + dt_bias))."""


@op(_rules.kda)
def fused_recurrent_kda(q, k, v, g, beta, A_log=None, dt_bias=None, scale=None, initial_state=None,
                        output_final_state=False, use_qk_l2norm_in_kernel=False, use_gate_in_kernel=False,
                        use_beta_sigmoid_in_kernel=False, allow_neg_eigval=False, lower_bound=None,
                        state_v_first=False, cu_seqlens=None, **more):  # fmt: skip
    """See chunk_kda."""


@op(_rules.gated_delta_product)
def chunk_gated_delta_product(q, k, v, g, beta, num_householder, scale=None, initial_state=None,
                              output_final_state=False, use_qk_l2norm_in_kernel=False, cu_seqlens=None,
                              cu_seqlens_cpu=None):  # fmt: skip
    """k, v, beta [b, t * num_householder, ..]: so many steps of the delta rule a token, the first of them behind the
    decay g [b, t, h of v] (None: there is none), the last of them read by q [b, t, h, d]."""


fused_recurrent_gated_delta_product = chunk_gated_delta_product


# ---- a reader and a writer -------------------------------------------------------------------------------------------


@op(_rules.dplr)
def chunk_dplr_delta_rule(q, k, v, a, b, gk, scale=None, initial_state=None, output_final_state=False,
                          cu_seqlens=None, cu_seqlens_cpu=None, **more):  # fmt: skip
    """a, b, gk [b, t, h, d]: what a reads of the state, before the decay e^gk, is added under b."""


@op(_rules.dplr)
def fused_recurrent_dplr_delta_rule(q, k, v, a, b, gk, scale=1.0, initial_state=None, output_final_state=False,
                                    reverse=False, cu_seqlens=None):  # fmt: skip
    """See chunk_dplr_delta_rule. As in FLA scale is 1 here; None: d^-0.5. reverse: from the last token to the first."""


@op(_rules.iplr)
def chunk_iplr_delta_rule(q, k, v, a, b, scale=None, initial_state=None, output_final_state=False, cu_seqlens=None,
                          cu_seqlens_cpu=None, **more):  # fmt: skip
    """See chunk_dplr_delta_rule; there is no decay."""


@op(_rules.iplr)
def fused_recurrent_iplr_delta_rule(q, k, v, a, b, scale=None, initial_state=None, output_final_state=False,
                                    reverse=False, cu_seqlens=None):  # fmt: skip
    """See chunk_iplr_delta_rule. reverse: from the last token to the first."""


@op(_rules.rwkv7)
def chunk_rwkv7(r, w, k, v, a, b, scale=1.0, initial_state=None, output_final_state=True, cu_seqlens=None,
                cu_seqlens_cpu=None, **more):  # fmt: skip
    """w, a, b [b, t, h, d]: see chunk_dplr_delta_rule, whose gk is w."""


@op(_rules.rwkv7)
def fused_recurrent_rwkv7(r, w, k, v, a, b, scale=None, initial_state=None, output_final_state=True,
                          cu_seqlens=None):  # fmt: skip
    """See chunk_rwkv7. As in FLA scale is d^-0.5 here, unless it is given."""


@op(_rules.rwkv7_by_rate)
def fused_mul_recurrent_rwkv7(r, w, k, v, kk, a, scale=1.0, initial_state=None, output_final_state=False, reverse=False,
                              cu_seqlens=None, **more):  # fmt: skip
    """kk [b, t, h, d] is removed at the rate a [b, t, h, d]: chunk_rwkv7 with -kk and kk * a."""


@op(_rules.comba)
def chunk_comba(q, k, v, p, g, beta=None, scale=None, initial_state=None, output_final_state=False,
                use_qk_l2norm_in_kernel=False, cu_seqlens=None, cu_seqlens_cpu=None, **more):  # fmt: skip
    """p [b, t, h of q, d] reads the state before the decay, where the delta rule has k; without it k does."""


fused_recurrent_comba = chunk_comba


@op(_rules.gdn2)
def chunk_gdn2(q, k, v, g, b, w, scale=None, initial_state=None, output_final_state=False,
               use_qk_l2norm_in_kernel=False, state_v_first=False, cu_seqlens=None, cu_seqlens_cpu=None,
               **more):  # fmt: skip
    """g, b [b, t, h of v, d], w [b, t, h of v, d_v]: logarithms of decays; gates that erase and that write."""


fused_recurrent_gdn2 = chunk_gdn2
