-- strong_keyed.lua: the same with the delta rule; the scale makes its gradients numbers of about 1
local function unit(v) return v * rsqrt(dimsum(v * v) + 1e-6) end
return linear_attention {
  inputs    = { r = tensor("float", "b", "h", "t", { grad = true }), g = tensor("float", "b", "h", "t", "d", { grad = true }) },
  scale     = 8.0,
  query_mod = unit,
  key_mod   = unit,
  delta     = function(at, x) return sigmoid(x.r(at.b, at.h, at.t)) end,
  decay     = function(at, x) return 4.0 * max(x.g(at.b, at.h, at.t, at.i), -1.25) end,
}
