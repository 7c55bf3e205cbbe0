return elementwise {
  over = { "n" },
  operands = { a = tensor("float", half("n")) },
  results = { y = tensor("float") },
  forward = function(v)
    return v.a + 1.0 -- error: v.a is a pair: write v.a.lo or v.a.hi
  end,
}
