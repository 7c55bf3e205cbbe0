return elementwise {
  over = { "n" },
  operands = { a = tensor("float", half("n")) },
  results = { y = tensor("float", half("n")) },
  forward = function(v) return { lo = v.a.hi, hi = v.a.lo } end, -- error: forward: 'y' is a pair: return { y = { lo = value, hi = value } }
}
