-- add.lua: y = a + b + c
return elementwise {
  over     = { "rows", "n" },
  operands = { a = tensor("float"), b = tensor("float"), c = tensor("float", { default = 0.0 }) },
  results  = { y = tensor("float") },
  forward  = function(v) return v.a + v.b + v.c end,
}
