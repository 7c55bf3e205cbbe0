return attention { inputs = { t = tensor('f32', 'h', { grad = true }), u = scalar('f32', { grad = true }) },
  mask_mod = causal, scale = function(at, x) return exp(0.1 * x.t(at.h) + 0.1 * x.u) * rsqrt(at.d) end }
