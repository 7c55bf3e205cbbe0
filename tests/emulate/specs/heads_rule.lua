-- Two heads of q read a state from the last token to the first; a reader and a writer beside keys in pairs.
return linear_attention {
  query_heads = 2,
  reverse = true,
  inputs  = { g = tensor("f32", "b", "h", "t", "d", { grad = true }), eta = tensor("f32", "b", "h", "t", { grad = true }) },
  key_mod = chain(unit, half(function(lo, hi, at) return lo * 0.8 - hi * 0.6, lo * 0.6 + hi * 0.8 end)),
  decay   = function(at, x) return -0.1 - 0.5 * sigmoid(x.g(at.b, at.h, at.t, at.i)) end,
  reader  = function(k, at, x) return -k end,
  writer  = function(k, at, x) return k * sigmoid(x.eta(at.b, at.h, at.t)) end,
}
