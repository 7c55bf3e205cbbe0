-- fails: chunks = recurrence: delta: expected a number from 0 to 2
return linear_attention {
  inputs  = { beta = tensor("f32", "b", "h", "t") },
  key_mod = unit,
  delta   = function(at, x) return 3.0 + sigmoid(x.beta(at.b, at.h, at.t)) end,
}
