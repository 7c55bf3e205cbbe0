return elementwise {
  over = { "n" },
  operands = { x = tensor("float"), y = tensor("float", { default = 1e-40 }) }, -- error: y: the constant 1e-40 is below 1.2e-38
  results = { z = tensor("float") },
  forward = function(v) return v.x + v.y end,
}
