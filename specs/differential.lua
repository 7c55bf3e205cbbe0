-- differential.lua: what differential attention (Ye et al. 2025) makes of its two attentions to the same values, x and other, a row per token and head:
-- y = (1 - init) * weight * d / sqrt(mean d^2 + eps), d = x - lambda * other. lambda is one learned number of a layer
return rowwise {
  inputs = { other = tensor("float", "rows", "n", { grad = true }), lambda = tensor("f32", 1, { grad = true }),
             weight = tensor("float", "n", { default = 1.0, grad = true }), init = scalar("f32", { default = 0.8 }), eps = scalar("f32", { default = 1e-5 }) },
  forward = function(x, at, p)
    local d = x - p.lambda(0) * p.other(at.row, at.i)
    return d * rsqrt(rowsum(d * d) / at.n + p.eps) * p.weight(at.i) * (1.0 - p.init)
  end,
}
