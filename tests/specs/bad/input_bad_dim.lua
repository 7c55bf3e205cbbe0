return attention {
  inputs = { slopes = tensor("f32", {}) }, -- error: dim
  mask_mod = causal,
}
