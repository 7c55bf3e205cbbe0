-- soft_sign.lua: x / (1 + |x|), element by element
return rowwise {
  forward = function(x) return x / (1.0 + abs(x)) end,
}
