return elementwise {
  over = { "t", "h", "n" },
  operands = { a = tensor("float"), place = tensor("i32", "t") },
  results = {
    x = tensor("float", "slots", "n", { slot = "place" }), -- error: with a slot its dims are a name for the slots
  },
  forward = function(v) return v.a end,
}
