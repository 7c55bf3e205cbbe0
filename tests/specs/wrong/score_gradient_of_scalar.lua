-- fails: backward in kernels: the gradient of 'g' is nan in f32
return attention {
  inputs = { g = scalar("f32", { grad = true, range = { -200.0, 200.0 } }) },
  score_mod = function(s, at, x) return s / (1.0 + exp(-x.g)) end,
}
