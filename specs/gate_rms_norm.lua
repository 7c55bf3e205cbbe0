-- gate_rms_norm.lua: the gate before the norm: u = x * silu(gate), y = weight * u / sqrt(mean u^2 + eps)
return rowwise {
  inputs = { gate = tensor("float", "rows", "n", { grad = true }), weight = tensor("float", "n", { grad = true }), eps = scalar("f32", { default = 1e-6 }) },
  forward = function(x, at, p)
    local u = x * silu(p.gate(at.row, at.i))
    local rstd = rsqrt(rowsum(u * u) / at.n + p.eps)
    return u * rstd * p.weight(at.i), { rstd = rstd }
  end,
}
