return linear_attention { normalise = true, inputs = { g = tensor('float', 'b', 'h', 't', { grad = true }) },
  query_mod = function(q) return exp(0.5 * q) end, key_mod = function(k) return exp(0.5 * k) end,
  decay = function(at, x) return 0.004 * max(x.g(at.b, at.h, at.t), -3.0) end }
