-- fails: f32 = double: 'exp' leaves the range of f32
return linear_attention {
  inputs    = { dt = tensor("f32", "b", "h", "t") },
  value_mod = function(v, at, x) return v * log(1.0 + exp(x.dt(at.b, at.h, at.t))) end,
}
