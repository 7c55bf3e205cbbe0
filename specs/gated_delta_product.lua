-- gated_delta_product.lua: Gated DeltaProduct: N steps of the gated delta rule a token, the first behind the decay (Siems et al. 2025)
local N = param("N", 2)
return linear_attention {
  updates   = N,
  inputs    = { beta = tensor("float", "b", "h", "t", N, { grad = true }), g = tensor("float", "b", "h", "t", { grad = true }) },
  query_mod = unit,
  key_mod   = unit,
  decay     = function(at, x) return x.g(at.b, at.h, at.t) end,
  delta     = function(at, x) return x.beta(at.b, at.h, at.t, at.update) end,
}
