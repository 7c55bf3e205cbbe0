return attention { mask_mod = function(at) return lt(at.kv, 30) | (ge(at.q, at.kv) & lt(at.q - at.kv, 40)) end,
  score_mod = function(s, at) return s + tanh(0.1 * (at.q - at.kv)) end }
