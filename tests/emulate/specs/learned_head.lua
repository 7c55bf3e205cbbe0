return linear_attention { inputs = { r = tensor('f32', 'h', { grad = true }) },
  decay = function(at, x) return -exp(0.3 * x.r(at.h) - 2.0) end }
