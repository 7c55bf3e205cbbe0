-- log_softmax_inner.lua: log_softmax over the dim before the last: x is [..., n, rows], lse [..., rows]
return rowwise {
  along = -2,
  forward = function(x)
    local m = detach(rowmax(x))
    local lse = m + log(rowsum(exp(x - m)))
    return x - lse, { lse = lse }
  end,
}
