-- l2_norm.lua: y = x / sqrt(sum x^2 + eps)
return rowwise {
  inputs = { eps = scalar("f32", { default = 1e-6 }) },
  forward = function(x, at, p)
    local rnorm = rsqrt(rowsum(x * x) + p.eps)
    return x * rnorm, { rnorm = rnorm }
  end,
}
