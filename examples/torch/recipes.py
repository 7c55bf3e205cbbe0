"""Variants that are more than one spec: each in a few lines around calls of Lathe."""

import torch

import lathe
import lathe.torch

_causal = lathe.torch.wrap("causal", layout="bshd")


def differential_attention(q, k, v, factor):
    """Attention minus `factor` times another one (Ye et al. 2024). q, k [b, s, h, 2 d], v [b, s, h, d_v].

    The two halves of q and k are the queries and keys of two calls, which share v: views, no copies.
    """
    d = q.shape[-1] // 2
    first = _causal(q[..., :d], k[..., :d], v)
    second = _causal(q[..., d:], k[..., d:], v)
    return first - factor * second


FORGETTING = """-- weights decay by the product of gates between key and query (Lin et al. 2025): log f summed over kv + 1 .. q
return attention {
  inputs    = { gate = tensor("f32", "b", "h", "kv", { grad = true }) },
  mask_mod  = causal,
  score_mod = function(s, at, x) return s + x.gate(at.b, at.h, at.q) - x.gate(at.b, at.h, at.kv) end,
}"""
_forgetting = lathe.torch.wrap(lathe.compile(FORGETTING, "forgetting.lua"), layout="bshd")


def forgetting_attention(q, k, v, log_gate):
    """log_gate [b, s, h], at most 0: the logarithm of each token's gate. Its running sum is what the spec reads."""
    return _forgetting(q, k, v, gate=log_gate.float().cumsum(1))


SIGMOID = """-- sigmoid weights, with -log n added to scores, so that a row's weights add up to about 1 (Ramapuram et al. 2024)
return attention {
  mask_mod    = causal,
  score_mod   = function(s, at) return s - log(at.len_kv) end,
  online_func = elementwise_weights(sigmoid),
}"""
sigmoid_attention = lathe.torch.wrap(lathe.compile(SIGMOID, "sigmoid_log_n.lua"), layout="bshd")  # q, k, v [b, s, h, d]


KEPT = """-- dropout by a mask that is given: what is kept is multiplied by 1 / share
return attention {
  inputs      = { keep = tensor("u8", "b", "h", "q", "kv"), share = scalar("f32", { default = 1.0 }) },
  mask_mod    = causal,
  online_func = softmax_with_dropout(function(at, x) return ne(x.keep(at.b, at.h, at.row, at.kv), 0) end,
                                     function(at, x) return 1.0 / x.share end),
}"""
_kept = lathe.torch.wrap(lathe.compile(KEPT, "kept.lua"))


def attention_with_keep_mask(q, k, v, keep, share):
    """q, k, v [b, h, s, d]; keep [b, h, s, s] of bool: the weights that stay, each times 1 / share."""
    return _kept(q, k, v, keep=keep.to(torch.uint8), share=share)


_packed = lathe.torch.wrap("causal", layout="thd")


def packed_attention(sequences):
    """Sequences of their own lengths in one call. sequences: a list of (q, k, v), each [tokens, h, d]."""
    q, k, v = (torch.cat(parts) for parts in zip(*sequences))
    lengths = torch.tensor([len(parts[0]) for parts in sequences], dtype=torch.int32)
    cu = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).to(torch.int32).to(q.device)
    return _packed(q, k, v, cu_q=cu).split(lengths.tolist())
