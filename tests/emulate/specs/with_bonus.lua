return linear_attention { inputs = { g = tensor('float', 'b', 'h', 't', 'd', { grad = true }), u = tensor('float', 'h', 'd', { grad = true }), s = tensor('f32', 'h', { grad = true }) },
  decay = function(at, x) return x.g(at.b, at.h, at.t, at.i) end,
  bonus = function(at, x) return 1.0 + x.u(at.h, at.i) end,
  scale = function(at, x) return 0.2 * exp(0.1 * x.s(at.h)) end }
