return attention {
  inputs = { slopes = tensor("f31", "h") }, -- error: f31
  mask_mod = causal,
}
