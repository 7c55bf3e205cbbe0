return attention { -- error: 'scroe_mod'
  mask_mod = causal,
  scroe_mod = function(s) return s end,
}
