-- gated_delta.lua: Gated DeltaNet: the delta rule behind a decay per token, g its natural logarithm, <= 0 (Yang et al. 2024)
return linear_attention {
  inputs    = { beta = tensor("float", "b", "h", "t", { grad = true }), g = tensor("float", "b", "h", "t", { grad = true }) },
  query_mod = unit,
  key_mod   = unit,
  decay     = function(at, x) return x.g(at.b, at.h, at.t) end,
  delta     = function(at, x) return x.beta(at.b, at.h, at.t) end,
}
