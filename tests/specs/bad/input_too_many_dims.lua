return attention {
  inputs = { t = tensor("f32", "b", "h", "q", "kv", "d") }, -- error: dim
  mask_mod = causal,
}
