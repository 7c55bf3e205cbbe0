return elementwise {
  over = { "r", "n" },
  inputs = { s = scalar("i32") },
  operands = { a = tensor("i32") },
  results = {
    y = tensor("i32", { dither = "s" }), -- error: dither rounds to 16 bits, and the dtype is "i32"; declare it "float", "f16" or "bf16"
  },
  forward = function(v) return v.a + 1 end,
}
