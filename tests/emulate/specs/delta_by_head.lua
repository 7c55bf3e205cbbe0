-- delta_by_head.lua: the delta rule behind a learned decay per head; k of length 1, q as it is
return linear_attention {
  inputs  = { r = tensor("float", "b", "h", "t", { grad = true }), a = tensor("f32", "h", { grad = true }) },
  key_mod = unit,
  delta   = function(at, x) return sigmoid(x.r(at.b, at.h, at.t)) end,
  decay   = function(at, x) return -exp(0.3 * x.a(at.h) - 2.0) end,
}
