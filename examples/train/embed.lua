-- embed.lua: y = table[id]
return elementwise {
  inputs  = { table = tensor("f32", "vocabulary", "n", { grad = true }), id = tensor("i32", "rows") },
  over    = { "rows", "n" },
  results = { y = tensor("float") },
  forward = function(v, at, x) return x.table(x.id(at.rows), at.n) end,
}
