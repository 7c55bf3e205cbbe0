return linear_attention { inputs = { r = tensor('float', 'b', 'h', 't', { grad = true }), g = tensor('float', 'b', 'h', 't', 'd', { grad = true }),
    p = tensor('f32', 'h', { grad = true, range = { 0.0, 1.0 } }) }, key_mod = unit,
  delta = function(at, x) return sigmoid(x.r(at.b, at.h, at.t)) end, decay = function(at, x) return x.g(at.b, at.h, at.t, at.i) end,
  reader = function(k, at, x) return x.p(at.h) * k end, read_first = true }
