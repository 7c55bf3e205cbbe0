return attention { inputs = { bias = tensor('float', 'b', 'h', 'q', 'kv', { optional = true }) },
  score_mod = function(s, at, x) return s + x.bias(at.b, at.h, at.row, at.kv) end }
