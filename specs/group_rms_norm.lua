-- group_rms_norm.lua: y = weight * x / sqrt(mean x^2 + eps), a row per group: x [b, groups, n], parameters [groups, channels] as in group_norm
return rowwise {
  inputs = { weight = tensor("float", "groups_of", "channels_of", { grad = true }), groups = scalar("i32", { default = 1 }),
    channels = scalar("i32", { default = 1 }), eps = scalar("f32", { default = 1e-6 }) },
  forward = function(x, at, p)
    local rstd = rsqrt(rowsum(x * x) / at.n + p.eps)
    return x * rstd * p.weight(at.row % p.groups, at.i // (at.n // p.channels)), { rstd = rstd }
  end,
}
