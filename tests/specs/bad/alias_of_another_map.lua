return elementwise {
  {
    over = { "n" },
    operands = { a = tensor("float") },
    results = { y = tensor("float", { alias = "a" }) },
    forward = function(v) return v.a + 1.0 end,
  },
  {
    over = { "n" },
    operands = { b = tensor("float") },
    results = {
      z = tensor("float", { alias = "a" }), -- error: alias 'a' is no operand of this map
    },
    forward = function(v) return v.b end,
  },
}
