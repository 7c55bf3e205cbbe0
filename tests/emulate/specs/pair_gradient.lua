return attention { inputs = { bias = tensor('f32', 'b', 'h', 'q', 'kv', { grad = true }) },
  score_mod = function(s, at, x) return s + x.bias(at.b, at.h, at.row, at.kv) end }
