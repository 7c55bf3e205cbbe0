return rowwise { -- error: mask_mod
  mask_mod = causal,
}
