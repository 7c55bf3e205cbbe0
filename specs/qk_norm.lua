-- qk_norm.lua: causal, q and k divided by their root mean square over the head dim, with learned gains (Henry et al. 2020; Qwen 3)
local function rms(v, at) return v * rsqrt(dimsum(v * v) / at.d + 1e-6) end
return attention {
  inputs    = { q_gain = tensor("f32", "d", { grad = true }), k_gain = tensor("f32", "d", { grad = true }) },
  query_mod = function(v, at, x) return rms(v, at) * x.q_gain(at.i) end,
  key_mod   = function(v, at, x) return rms(v, at) * x.k_gain(at.i) end,
  mask_mod  = causal,
}
