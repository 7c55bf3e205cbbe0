-- keyed_bare.lua: q, k and v as they lie in memory, without mods that copy them
return linear_attention {
  inputs = { r = tensor("float", "b", "h", "t", { grad = true }), g = tensor("float", "b", "h", "t", "d", { grad = true }) },
  delta  = function(at, x) return 0.02 * sigmoid(x.r(at.b, at.h, at.t)) end,
  decay  = function(at, x) return 0.2 * max(x.g(at.b, at.h, at.t, at.i), -3.0) end,
}
