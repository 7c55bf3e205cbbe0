return elementwise {
  over = { "r", "n" },
  operands = { a = tensor("float") },
  results = { y = tensor("f32", "r") },
  forward = function(v) return { y = total(v.a) } end, -- error: total is for rowwise; in elementwise a result whose tensor(...) lacks a dim of 'over' is summed over it
}
