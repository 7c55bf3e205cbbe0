return rowwise { -- error: mask_mod -- error: 'forward' is missing
  mask_mod = causal,
}
