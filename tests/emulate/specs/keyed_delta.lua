local function unit(v) return v * rsqrt(dimsum(v * v) + 1e-6) end
return linear_attention { inputs = { r = tensor('float', 'b', 'h', 't', { grad = true }), g = tensor('float', 'b', 'h', 't', 'd', { grad = true }), a = tensor('f32', 'h', { grad = true }),
    low = tensor('f32', 'h', 'd', { grad = true }) },
  query_mod = unit, key_mod = unit, delta = function(at, x) return sigmoid(x.r(at.b, at.h, at.t)) end,
  decay = function(at, x) return exp(0.3 * x.a(at.h)) * x.g(at.b, at.h, at.t, at.i) - exp(0.2 * x.low(at.h, at.i) - 3.0) end }
