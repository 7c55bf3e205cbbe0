return attention {
  mask_mod = causal
  score_mod = function(s) return s end, -- error: is one missing ahead of it?
}
