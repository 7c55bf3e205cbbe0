return linear_attention {
  inputs = { g = tensor("f32", "b", "h", "t", "d") },
  decay  = function(at, x) return -dimsum(exp(x.g(at.b, at.h, at.t, at.i))) end, -- error: decay: looks at one channel at a time
}
