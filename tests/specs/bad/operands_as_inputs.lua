return elementwise {
  over = { "n" },
  operands = { gate = tensor("float") },
  results = { y = tensor("float") },
  forward = function(v, at, x)
    return x.gate -- error: 'gate' is an operand and no input: write v.gate
  end,
}
