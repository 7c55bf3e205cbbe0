-- gla.lua: gated linear attention: a gate per key channel, g the natural logarithm of the decay, <= 0 (Yang et al. 2023)
return linear_attention {
  inputs = { g = tensor("float", "b", "h", "t", "d", { grad = true }) },
  decay  = function(at, x) return x.g(at.b, at.h, at.t, at.i) end,
}
