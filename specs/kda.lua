-- kda.lua: Kimi Delta Attention: the delta rule behind a decay per key channel, g its natural logarithm, <= 0 (Kimi Team 2025)
return linear_attention {
  inputs    = { beta = tensor("float", "b", "h", "t", { grad = true }), g = tensor("float", "b", "h", "t", "d", { grad = true }) },
  query_mod = unit,
  key_mod   = unit,
  decay     = function(at, x) return x.g(at.b, at.h, at.t, at.i) end,
  delta     = function(at, x) return x.beta(at.b, at.h, at.t) end,
}
