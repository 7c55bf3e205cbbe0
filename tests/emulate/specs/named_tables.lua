return attention { inputs = { t = tensor('f32', 'h', 'kinds', 'kinds', { grad = true }), u = tensor('f32', 'kinds', { grad = true }), id = tensor('i32', 'kv') },
  score_mod = function(s, at, x)
    local i, j = x.id(max(at.q, 0)), x.id(at.kv)
    return s * (1.0 + 0.1 * x.t(at.h, i % 5, j % 5)) + x.u((i + j) % 5)
  end }
