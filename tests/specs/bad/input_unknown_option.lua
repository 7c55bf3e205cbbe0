return attention {
  inputs = { slopes = tensor("f32", "h", { gard = true }) }, -- error: gard
  mask_mod = causal,
}
