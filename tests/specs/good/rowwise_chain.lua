-- rowwise with two passes, a weight along the row and a statistic
return rowwise {
  inputs = { weight = tensor("f32", "n", { grad = true }), eps = scalar("f32", { default = 1e-5 }) },
  forward = function(x, at, p)
    local mean = rowsum(x) / at.n
    local d = x - mean
    local rstd = rsqrt(rowsum(d * d) / at.n + p.eps)
    return d * rstd * p.weight(at.i), { rstd = rstd }
  end,
}
