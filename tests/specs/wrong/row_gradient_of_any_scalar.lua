-- fails: f32 = double: (data
return rowwise { inputs = { a = scalar("f32", { grad = true, default = 0.5 }) },
  forward = function(x, at, p) return x / (1.0 + exp(-80.0 * p.a)) end }
