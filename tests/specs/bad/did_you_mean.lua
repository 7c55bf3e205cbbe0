return attention {
  scoremod = 1, -- error: unknown field 'scoremod' (inputs query_mod key_mod value_mod mask_mod score_mod scale online_func output_mod v qk2); did you mean 'score_mod'?
  mask_mod = function(at) return casual(at) end, -- error: unknown name 'casual'; did you mean 'causal'?
  score_mod = function(s) return tnh(s) end, -- error: unknown name 'tnh'; did you mean 'tanh'?
  query_mod = function(v, at) return v * at.lenq end, -- error: did you mean 'len_q'?
  key_mod = function(v) return v + sum(v) end, -- error: unknown name 'sum'; write rowsum(v)
  value_mod = function(v) return v + True end, -- error: unknown name 'True'; write true
}
