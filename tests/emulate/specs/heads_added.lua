-- Three heads of q read a state that is added up, behind a decay by token; with keys as they are given.
return linear_attention {
  query_heads = 3,
  inputs    = { g = tensor("f32", "b", "h", "t", { grad = true }) },
  query_mod = function(v, at) return v * (1.0 + 0.01 * f32(at.pos % 7)) end,
  decay     = function(at, x) return -0.1 - 0.5 * sigmoid(x.g(at.b, at.h, at.t)) end,
  scale     = 0.25,
}
