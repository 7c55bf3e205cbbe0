return attention { inputs = { small = tensor('f32', 'h', 5, 5, { grad = true }), middle = tensor('f32', 'h_kv', 12, 25, { grad = true }),
    large = tensor('f32', 'b', 40, 400, { grad = true }), per_row = tensor('f32', 'h', 7, { grad = true }), id = tensor('i32', 'kv') },
  mask_mod = causal, score_mod = function(s, at, x)
    local i, j = x.id(max(at.q, 0)), x.id(at.kv)
    return s * (1.0 + 0.1 * x.small(at.h, i % 5, j % 5)) + x.middle(at.h_kv, j % 12, i % 25) + x.large(at.b, i, (10 * j + at.kv) % 400) +
      x.per_row(at.h, i % 7)
  end }
