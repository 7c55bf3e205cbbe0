-- fails: f32 = double: dx is nan in f32
return elementwise { over = { "n" }, operands = { x = tensor("float", { grad = true }) }, results = { y = tensor("float") },
  forward = function(v) return v.x / (1.0 + exp(-v.x)) end }
