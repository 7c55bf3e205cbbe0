-- rms_norm_residual.lua: sum = x + residual, y = (offset + weight) * sum / sqrt(mean sum^2 + eps); sum is what the block goes on with
return rowwise {
  inputs = { residual = tensor("float", "rows", "n", { grad = true }), weight = tensor("float", "n", { grad = true }),
    eps = scalar("f32", { default = 1e-6 }), offset = scalar("f32", { default = 0.0 }) },
  forward = function(x, at, p)
    local sum = x + p.residual(at.row, at.i)
    local rstd = rsqrt(rowsum(sum * sum) / at.n + p.eps)
    return sum * rstd * (p.offset + p.weight(at.i)), { sum = sum, rstd = rstd }
  end,
}
