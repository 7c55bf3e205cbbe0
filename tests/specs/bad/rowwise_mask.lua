return rowwise { -- error: 'forward' is missing
  mask_mod = causal, -- error: mask_mod
}
