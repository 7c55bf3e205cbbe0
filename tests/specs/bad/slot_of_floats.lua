return elementwise {
  over = { "t", "n" },
  operands = { a = tensor("float"), place = tensor("f32", "t") },
  results = {
    x = tensor("float", "slots", "n", { slot = "place" }), -- error: slot 'place' must be an i32 operand without a default
  },
  forward = function(v) return v.a end,
}
