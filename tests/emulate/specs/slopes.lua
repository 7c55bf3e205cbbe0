return attention { inputs = { slope = tensor('f32', 'h', { grad = true }) }, mask_mod = causal,
  score_mod = function(s, at, x) return s - 0.1 * x.slope(at.h) * (at.q - at.kv) end }
