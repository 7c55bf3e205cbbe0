-- every function and operator of the language, once
return attention {
  mask_mod = function(at)
    local near = lt(at.q - at.kv, 64) & ge(at.q, at.kv)
    local sink = le(at.kv, 3) | eq(at.kv % 7, 0)
    return (near | sink) & ~(gt(at.kv, at.len_kv - 2) | ne(at.kv // 8, at.q // 8))
  end,
  score_mod = function(s, at)
    local u = 1.0 + abs(s)
    local v = s / u
    local t = exp(v) + exp2(v) - log(u) * log2(u) / sqrt(u) + rsqrt(u)
    t = t + sin(t) + cos(t) + tanh(t) + sigmoid(t) + silu(t) + relu(t) + erf(t) + gelu(t)
    t = abs(t) + min(t, 1.0) + max(t, -1.0) + clamp(t, -2, 2) + floor(t) + ceil(t) + t ^ 2 + -t
    return where(gt(t, 0.0), t, detach(s)) + f32(i32(s)) + f32(at.h)
  end,
}
