return attention { inputs = { t = tensor('f32', 1, 1, { grad = true }), id = tensor('i32', 'kv') },
  score_mod = function(s, at, x) return s * (1.0 + x.t(x.id(max(at.q, 0)) // 99, x.id(at.kv) // 99)) end }
