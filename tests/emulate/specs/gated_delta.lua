local function unit(v) return v * rsqrt(dimsum(v * v) + 1e-6) end
return linear_attention { inputs = { r = tensor('float', 'b', 'h', 't', { grad = true }), u = tensor('float', 'b', 'h', 't', { grad = true }), a = tensor('f32', 'h', { grad = true }) },
  query_mod = unit, key_mod = unit, delta = function(at, x) return sigmoid(x.r(at.b, at.h, at.t)) end,
  decay = function(at, x) return -exp(0.3 * x.a(at.h)) * log(1.0 + exp(x.u(at.b, at.h, at.t))) end }
