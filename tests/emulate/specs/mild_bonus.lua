return linear_attention { reverse = true, inputs = { g = tensor('float', 'b', 'h', 't', 'd', { grad = true }), u = tensor('float', 'h', 'd', { grad = true }) },
  decay = function(at, x) return 0.3 * max(x.g(at.b, at.h, at.t, at.i), -2.0) end,
  bonus = function(at, x) return 1.0 + x.u(at.h, at.i) end }
