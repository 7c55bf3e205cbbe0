return linear_attention {
  inputs    = { g = tensor("f32", "b", "h", "t", "d_v") },
  normalise = true,
  decay     = function(at, x) return -exp(x.g(at.b, at.h, at.t, at.j)) end, -- error: decay: does not go with normalise where it varies with the value channel
}
