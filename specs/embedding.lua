-- embedding.lua: y = table[id], rows of a table by their numbers; the gradient adds up where a number comes again
return elementwise {
  over = { "b", "t", "d" },
  inputs = { table = tensor("float", "words", "d", { grad = true }), id = tensor("i32", "b", "t", { range = { 0, "words" } }) },
  results = { y = tensor("float") },
  forward = function(v, at, x) return x.table(x.id(at.b, at.t), at.d) end,
}
