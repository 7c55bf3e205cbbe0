-- What goes with the delta rule: neither a bonus nor a sum of keys.
return linear_attention {
  inputs    = { u = tensor("f32", "h", "d"), beta = tensor("f32", "b", "h", "t") },
  normalise = true,
  delta     = function(at, x) return sigmoid(x.beta(at.b, at.h, at.t)) end, -- error: delta: does not go with normalise
  bonus     = function(at, x) return 2.0 * x.u(at.h, at.i) end, -- error: bonus: does not go with delta
}
