return linear_attention {
  inputs = { g = tensor("float", "b", "h", "t", "d", { grad = true }), u = tensor("float", "h", "d", { grad = true }) },
  decay = function(at, x) return -exp(x.g(at.b, at.h, at.t, at.i)) end,
  bonus = function(at, x) return exp(x.u(at.h, at.i)) end,
  query_mod = function(q) return exp(q) end,
  key_mod = function(k) return exp(k) end,
  normalise = true,
}
