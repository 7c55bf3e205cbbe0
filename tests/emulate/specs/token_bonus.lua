return linear_attention { inputs = { g = tensor('float', 'b', 'h', 't', { grad = true }), u = tensor('float', 'h', 'd', { grad = true }) },
  decay = function(at, x) return x.g(at.b, at.h, at.t) end,
  bonus = function(at, x) return 1.0 + x.u(at.h, at.i) end }
