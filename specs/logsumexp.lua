-- logsumexp.lua: lse = log sum exp(x), per row; a row of -inf alone gives -inf, one with inf gives inf
return rowwise {
  forward = function(x)
    local m = detach(clamp(rowmax(x), -1e38, 1e38)) -- finite: no inf - inf
    return { lse = m + log(rowsum(exp(x - m))) }
  end,
}
