return linear_attention {
  inputs = { g = tensor("f32", "b", "h", "t") },
  decay  = function(at, x) return logsigmoid(x.g(at.b, at.h, at.t)) end, -- error: unknown name 'logsigmoid'; write -softplus(-a)
}
