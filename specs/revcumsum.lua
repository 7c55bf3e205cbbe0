-- revcumsum.lua: y_i = x_i + ... + x_(n - 1) along each row
return rowwise {
  forward = function(x) return revcumsum(x, 0.0) end,
}
