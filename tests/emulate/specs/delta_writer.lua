return linear_attention { inputs = { r = tensor('float', 'b', 'h', 't', { grad = true }), g = tensor('float', 'b', 'h', 't', { grad = true }),
    m = tensor('float', 'b', 'h_k', 't', 'd', { grad = true, range = { 0.66, 1.5 } }), e = tensor('float', 'b', 'h', 't', 'd', { grad = true, range = { 0.0, 1.0 } }) },
  key_mod = unit, delta = function(at, x) return sigmoid(x.r(at.b, at.h, at.t)) end, decay = function(at, x) return x.g(at.b, at.h, at.t) end,
  reader = function(k, at, x) return x.e(at.b, at.h, at.t, at.i) * k end, writer = function(k, at, x) return x.m(at.b, at.h_k, at.t, at.i) * k end }
