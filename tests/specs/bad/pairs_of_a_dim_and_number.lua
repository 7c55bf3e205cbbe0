return elementwise {
  over = { "n" },
  operands = { x = tensor("float", half("n", 32)) }, -- error: half takes a function (lo, hi, at, x) -> lo, hi, and how many elements
  results = { y = tensor("float") },
  forward = function(v) return v.x.lo end,
}
