-- cumsum.lua: y_i = x_0 + ... + x_i along each row
return rowwise {
  forward = function(x) return cumsum(x, 0.0) end,
}
