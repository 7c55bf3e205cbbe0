return elementwise {
  over = { "n" },
  operands = { a = tensor("float") },
  results = {
    y = tensor("float", { alias = "a" }),
    z = tensor("float", { alias = "a" }), -- error: alias 'a' is taken by the result 'y'; name another operand
  },
  forward = function(v) return { y = v.a + 1.0, z = v.a + 2.0 } end,
}
