-- softmax_inner.lua: softmax over the dim before the last: x is [..., n, rows], every column of an [n, rows] matrix sums to 1
return rowwise {
  along = -2,
  forward = function(x)
    local e = exp(x - detach(rowmax(x)))
    return e / rowsum(e)
  end,
}
