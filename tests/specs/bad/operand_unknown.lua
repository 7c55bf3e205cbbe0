return elementwise {
  over = { "n" },
  operands = { gate = tensor("float") },
  results = { y = tensor("float") },
  forward = function(v)
    return v.gates -- error: there is no operand 'gates' here; did you mean 'gate'?
  end,
}
