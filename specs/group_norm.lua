-- group_norm.lua: y = weight * (x - mean) / sqrt(var + eps) + bias, a row per group: x [b, groups, n], the n elements of a group being
-- `channels` channels of n / channels neighbours each (1 where groups split the last dim); parameters are [groups, channels]
return rowwise {
  inputs = { weight = tensor("float", "groups_of", "channels_of", { grad = true }), bias = tensor("float", "groups_of", "channels_of", { grad = true }),
    groups = scalar("i32", { default = 1 }), channels = scalar("i32", { default = 1 }), eps = scalar("f32", { default = 1e-6 }) },
  forward = function(x, at, p)
    local mean = rowsum(x) / at.n
    local rstd = rsqrt(rowsum((x - mean) * (x - mean)) / at.n + p.eps)
    local group, channel = at.row % p.groups, at.i // (at.n // p.channels)
    return (x - mean) * rstd * p.weight(group, channel) + p.bias(group, channel), { mean = mean, rstd = rstd }
  end,
}
