return elementwise {
  over = { "n" },
  inputs = { s = scalar("i32") },
  operands = { a = tensor("float") },
  results = {
    y = tensor("f32", { dither = "s" }), -- error: dither rounds to 16 bits, and the dtype is "f32"
  },
  forward = function(v) return v.a end,
}
