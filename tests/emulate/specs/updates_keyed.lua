-- Three updates a token behind a decay by key channel; the same beta for all.
return linear_attention {
  updates = 3,
  inputs = { g = tensor("f32", "b", "h", "t", "d", { grad = true }), beta = tensor("f32", "b", "h", "t", { grad = true }) },
  key_mod = unit,
  decay   = function(at, x) return -0.05 - 0.3 * sigmoid(x.g(at.b, at.h, at.t, at.i)) end,
  delta   = function(at, x) return sigmoid(x.beta(at.b, at.h, at.t)) end,
}
