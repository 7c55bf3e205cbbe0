-- log_softmax.lua: y = x - log sum exp(x), per row; lse is a statistic
return rowwise {
  forward = function(x)
    local m = detach(rowmax(x))
    local lse = m + log(rowsum(exp(x - m)))
    return x - lse, { lse = lse }
  end,
}
