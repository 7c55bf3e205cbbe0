-- add.lua: y = a + b + c + d
local rest = tensor("float", { default = 0.0 })
return elementwise {
  over     = { "rows", "n" },
  operands = { a = tensor("float"), b = tensor("float"), c = rest, d = rest },
  results  = { y = tensor("float") },
  forward  = function(v) return v.a + v.b + v.c + v.d end,
}
