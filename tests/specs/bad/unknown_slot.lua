return attention {
  mask_mod = causal,
  scroe_mod = function(s) return s end, -- error: 'scroe_mod'
}
