return elementwise {
  over = { "t", "n" },
  operands = { a = tensor("float"), place = tensor("f32", "t") },
  results = {
    x = tensor("float", "slots", "n", { slot = "nowhere" }), -- error: slot 'nowhere' is no operand of this map
  },
  forward = function(v) return v.a end,
}
