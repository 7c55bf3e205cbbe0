return linear_attention { inputs = { g = tensor('float', 'b', 'h', 't', 'd', { grad = true }) },
  decay = function(at, x) return 0.1 * max(x.g(at.b, at.h, at.t, at.i), -3.0) end }
