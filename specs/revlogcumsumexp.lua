-- revlogcumsumexp.lua: y_i = log(e^x_i + ... + e^x_(n - 1)) along each row
return rowwise {
  forward = function(x) return revlogcumsumexp(x, 0.0) end,
}
