-- lost_delta.lua: by the delta rule, the gate of head 0 is NaN at the first three tokens of a sequence
return linear_attention {
  inputs    = { r = tensor("float", "b", "h", "t", { grad = true }), g = tensor("float", "b", "h", "t", { grad = true }) },
  query_mod = unit,
  key_mod   = unit,
  delta     = function(at, x) return sigmoid(x.r(at.b, at.h, at.t)) end,
  decay     = function(at, x)
    local g = x.g(at.b, at.h, at.t)
    return where(eq(at.h, 0) & lt(at.pos, 3), sqrt(g - 1.0), g)
  end,
}
