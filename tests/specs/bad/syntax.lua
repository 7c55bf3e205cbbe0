return attention {
  mask_mod = causal
  score_mod = function(s) return s end, -- error: expected
}
