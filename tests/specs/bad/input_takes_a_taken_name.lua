return attention {
  inputs = { q = tensor("f32", "h") }, -- error: 'q'
  mask_mod = causal,
}
