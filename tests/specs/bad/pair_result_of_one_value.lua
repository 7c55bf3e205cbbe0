return elementwise {
  over = { "n" },
  operands = { a = tensor("float") },
  results = { y = tensor("float", half("n")) },
  forward = function(v) return v.a end, -- error: forward: 'y' is a pair: return { y = { lo = value, hi = value } }
}
