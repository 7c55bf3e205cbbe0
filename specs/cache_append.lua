-- cache_append.lua: k and v [b,t,h_kv,d] over their scales (row_scale) into a cache, of 8 bits or any float: token (b, t) goes to slot(b, t)
-- of k_cache and v_cache [slots,h_kv,d], nowhere where that is below 0; and the scales, by scale_slot, to k_scale_cache and v_scale_cache
local token, cache = tensor("float", "b", "t", "h_kv", "i"), tensor("float", "slots", "h_kv", "i", { slot = "slot" })
local scales = tensor("f32", "slots", "h_kv", { slot = "scale_slot" })
local function of_k(at, x) return x.k_scale(at.b, at.t, at.h_kv) end
local function of_v(at, x) return x.v_scale(at.b, at.t, at.h_kv) end
return elementwise { -- lathe run cache_append --problem dtype=bf16,k_cache=f8e4m3,v_cache=f8e4m3
  inputs = { k_scale = tensor("f32", "b", "t", "h_kv"), v_scale = tensor("f32", "b", "t", "h_kv") },
  { over = { "b", "t", "h_kv", "i" }, operands = { k = token, v = token, slot = tensor("i32", "b", "t") },
    results = { k_cache = cache, v_cache = cache },
    forward = function(v, at, x) return { k_cache = v.k / of_k(at, x), v_cache = v.v / of_v(at, x) } end },
  { over = { "b", "t", "h_kv" }, operands = { scale_slot = tensor("i32", "b", "t") },
    results = { k_scale_cache = scales, v_scale_cache = scales },
    forward = function(v, at, x) return { k_scale_cache = of_k(at, x), v_scale_cache = of_v(at, x) } end },
}
