-- fp8_cache.lua: causal, over a cache whose k and v have 8 bits and a scale for each token and key head: that of k is a factor of its scores,
-- that of v one of its weights, so both are read as they are stored; lse is that of the scores
local function of_value(at, x) return x.v_scale(at.b, at.h_kv, at.kv) end
return attention { -- lathe run fp8_cache --problem dtype=bf16,k=f8e4m3,v=f8e4m3,h=32,h_kv=8,q=1,kv=4096,d=128
  inputs = { k_scale = tensor("f32", "b", "h_kv", "kv"), v_scale = tensor("f32", "b", "h_kv", "kv") },
  mask_mod = causal,
  score_mod = function(s, at, x) return s * x.k_scale(at.b, at.h_kv, at.kv) end,
  online_func = softmax_times(of_value),
}
