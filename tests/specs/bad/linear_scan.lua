return linear_attention {
  inputs = { g = tensor("f32", "b", "h", "t", "d") },
  decay  = function(at, x) return cumsum(x.g(at.b, at.h, at.t, at.i), 0.0) end, -- error: cumsum belongs in rowwise { ... }: tokens come in chunks
}
