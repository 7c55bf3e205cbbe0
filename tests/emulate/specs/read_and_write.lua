return linear_attention { inputs = { g = tensor('float', 'b', 'h', 't', 'd', { grad = true }), a = tensor('float', 'b', 'h', 't', 'd', { grad = true, range = 'unit' }),
    eta = tensor('float', 'b', 'h', 't', 'd', { grad = true, range = { 0.0, 1.0 } }), low = tensor('f32', 'h', 'd', { grad = true }) },
  key_mod = unit, decay = function(at, x) return x.g(at.b, at.h, at.t, at.i) end,
  reader = function(k, at, x) return -x.a(at.b, at.h, at.t, at.i) + 0.1 * x.low(at.h, at.i) * k end,
  writer = function(k, at, x) return x.a(at.b, at.h, at.t, at.i) * x.eta(at.b, at.h, at.t, at.i) + 0.1 * sin(k) end }
