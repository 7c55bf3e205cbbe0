-- fails: f32 = double: 'exp' leaves the range of f32
return elementwise {
  over = { "n" },
  operands = { x = tensor("float") },
  results = { y = tensor("float") },
  forward = function(v) return log(1.0 + exp(v.x)) end,
}
