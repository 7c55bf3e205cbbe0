return elementwise {
  over = { "t", "n" },
  operands = { a = tensor("float"), place = tensor("i32", "t") },
  results = {
    x = tensor("float", "t", "n", { slot = "place" }), -- error: with a slot its first dim is a name that 'over' has not
  },
  forward = function(v) return v.a end,
}
