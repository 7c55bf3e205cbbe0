-- layer_norm.lua: y = weight * (x - mean) / sqrt(var + eps) + bias, biased variance
return rowwise {
  inputs = { weight = tensor("float", "n", { grad = true }), bias = tensor("float", "n", { grad = true }), eps = scalar("f32", { default = 1e-6 }) },
  forward = function(x, at, p)
    local mean = rowsum(x) / at.n
    local rstd = rsqrt(rowsum((x - mean) * (x - mean)) / at.n + p.eps)
    return (x - mean) * rstd * p.weight(at.i) + p.bias(at.i), { mean = mean, rstd = rstd }
  end,
}
