-- srms_norm.lua: y = x / sqrt(mean x^2 + eps): rms_norm without a weight
return rowwise {
  inputs = { eps = scalar("f32", { default = 1e-6 }) },
  forward = function(x, at, p)
    local rstd = rsqrt(rowsum(x * x) / at.n + p.eps)
    return x * rstd, { rstd = rstd }
  end,
}
