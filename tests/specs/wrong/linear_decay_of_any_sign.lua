-- fails: chunks = recurrence: decay: expected the logarithm of a factor of at most 1
return linear_attention {
  inputs = { g = tensor("f32", "b", "h", "t") },
  decay  = function(at, x) return 0.5 * x.g(at.b, at.h, at.t) end,
}
