return attention { inputs = { r = tensor('f32', 'b', 'q', { grad = true }), c = tensor('f32', 'h', 'kv', { grad = true }),
    t = tensor('f32', 'h_kv', 'reach', { grad = true }) },
  mask_mod = function(at) return ge(at.q + 9, at.kv) end,
  score_mod = function(s, at, x)
    local d = clamp(at.q - at.kv, 0, 39)
    return s * (1.0 + 0.2 * x.t(at.h_kv, d)) + x.r(at.b, at.row) * x.c(at.h, at.kv) + tanh(x.c(at.h, at.kv) + x.r(at.b, at.row))
  end }
