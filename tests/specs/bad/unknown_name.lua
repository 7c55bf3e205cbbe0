return attention {
  mask_mod = causal,
  score_mod = function(s) return tahn(s) end, -- error: unknown name 'tahn'
}
