return attention { inputs = { t = tensor('f32', 'h_kv', { grad = true }) },
  scale = function(at, x) return exp(0.1 * x.t(at.h_kv)) * rsqrt(at.d) end }
