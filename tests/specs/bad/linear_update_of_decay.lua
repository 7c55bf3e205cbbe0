-- The decay is applied once for a token.
return linear_attention {
  updates = 2,
  inputs  = { g = tensor("float", "b", "h", "t", 2) },
  decay   = function(at, x) return x.g(at.b, at.h, at.t, at.update) end, -- error: update
}
