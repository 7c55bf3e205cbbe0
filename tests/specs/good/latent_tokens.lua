-- latent_tokens.lua
return attention {
  qk2 = true, v = "k", mask_mod = causal,
  scale = 192 ^ -0.5, -- of the heads before they were absorbed
  inputs = { k_scale = tensor("f32", "b", "h_kv", "kv", 4) },
  key_mod = function(k, at, x) return k * x.k_scale(at.b, at.h_kv, at.kv, clamp(at.i // 128, 0, 3)) end,
}
