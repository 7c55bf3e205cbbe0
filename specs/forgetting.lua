-- forgetting.lua: forgetting attention (FoX, Lin et al. 2025): causal, scores + gates[q] - gates[kv], where gates [b, h, kv] is the sum of the
-- logarithms of all forget gates up to a token (cumsum over time)
return attention {
  inputs    = { gates = tensor("f32", "b", "h", "kv", { grad = true }) },
  mask_mod  = causal,
  score_mod = function(s, at, x)
    return s + x.gates(at.b, at.h, clamp(at.q, 0, at.len_kv - 1)) - x.gates(at.b, at.h, at.kv)
  end,
}
