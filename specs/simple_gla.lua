-- simple_gla.lua: one gate per token and head, g the natural logarithm of the decay, <= 0 (simple GLA of FLA; Yang et al. 2024)
return linear_attention {
  inputs = { g = tensor("float", "b", "h", "t", { grad = true }) },
  decay  = function(at, x) return x.g(at.b, at.h, at.t) end,
}
