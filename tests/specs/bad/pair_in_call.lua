return elementwise {
  over = { "n" },
  operands = { a = tensor("float", half("n")) },
  results = { y = tensor("float") },
  forward = function(v)
    return exp(v.a) -- error: got the pair v.a (write v.a.lo or v.a.hi)
  end,
}
