return attention { inputs = { r = tensor('f32', 'b', 'q', { grad = true }), c = tensor('f32', 'h', 'kv', { grad = true }), t = tensor('f32', 'h', { grad = true }) },
  score_mod = function(s, at, x) return s * (1.0 + 0.1 * x.t(at.h)) + x.r(at.b, at.row) * x.c(at.h, at.kv) end }
