-- sandwich.lua: causal, with the inner product of sinusoidal positions as bias: n_h / (8 (h + 1)) * cosines[q - kv] (Chi et al. 2023); sandwich_table makes
-- cosines for all distances
return attention {
  inputs    = { cosines = tensor("f32", "distances") },
  mask_mod  = causal,
  score_mod = function(s, at, x)
    return s + x.cosines(max(at.q - at.kv, 0)) * at.n_h / (8.0 * (at.h + 1))
  end,
}
