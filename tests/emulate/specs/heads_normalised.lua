-- Three heads of q read a state and its sum of keys, behind a decay by key channel; keys are made positive.
return linear_attention {
  query_heads = 3,
  inputs    = { g = tensor("f32", "b", "h", "t", "d", { grad = true }) },
  query_mod = function(v) return exp(0.5 * v) end,
  key_mod   = function(v) return exp(0.5 * v) end,
  decay     = function(at, x) return -0.1 - 0.5 * sigmoid(x.g(at.b, at.h, at.t, at.i)) end,
  normalise = true,
}
