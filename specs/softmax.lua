-- softmax.lua: y = exp(x - max) / sum exp(x - max), per row
return rowwise {
  forward = function(x)
    local e = exp(x - detach(rowmax(x)))
    return e / rowsum(e)
  end,
}
