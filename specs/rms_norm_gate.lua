-- rms_norm_gate.lua: the gate after the norm: y = weight * x / sqrt(mean x^2 + eps) * silu(gate)
return rowwise {
  inputs = { gate = tensor("float", "rows", "n", { grad = true }), weight = tensor("float", "n", { grad = true }), eps = scalar("f32", { default = 1e-6 }) },
  forward = function(x, at, p)
    local rstd = rsqrt(rowsum(x * x) / at.n + p.eps)
    return x * rstd * p.weight(at.i) * silu(p.gate(at.row, at.i)), { rstd = rstd }
  end,
}
