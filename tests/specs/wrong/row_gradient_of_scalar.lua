-- fails: f32 = double: da is nan in f32
return rowwise {
  inputs = { a = scalar("f32", { grad = true, range = { -200.0, 200.0 } }) },
  forward = function(x, at, p) return x / (1.0 + exp(-p.a)) end,
}
