-- layer_norm_residual.lua: sum = x + residual, y = weight * (sum - mean) / sqrt(var + eps) + bias
return rowwise {
  inputs = { residual = tensor("float", "rows", "n", { grad = true }), weight = tensor("float", "n", { grad = true }),
    bias = tensor("float", "n", { grad = true }), eps = scalar("f32", { default = 1e-6 }) },
  forward = function(x, at, p)
    local sum = x + p.residual(at.row, at.i)
    local mean = rowsum(sum) / at.n
    local rstd = rsqrt(rowsum((sum - mean) * (sum - mean)) / at.n + p.eps)
    return (sum - mean) * rstd * p.weight(at.i) + p.bias(at.i), { sum = sum, mean = mean, rstd = rstd }
  end,
}
