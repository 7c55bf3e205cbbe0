-- rms_norm.lua: y = (offset + weight) * x / sqrt(mean x^2 + eps); offset 1 is Gemma's form
return rowwise {
  inputs = { weight = tensor("float", "n", { grad = true }), eps = scalar("f32", { default = 1e-6 }), offset = scalar("f32", { default = 0.0 }) },
  forward = function(x, at, p)
    local rstd = rsqrt(rowsum(x * x) / at.n + p.eps)
    return x * rstd * (p.offset + p.weight(at.i)), { rstd = rstd }
  end,
}
