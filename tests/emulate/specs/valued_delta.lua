local function unit(v) return v * rsqrt(dimsum(v * v) + 1e-6) end
return linear_attention { inputs = { r = tensor('float', 'b', 'h', 't', { grad = true }), g = tensor('float', 'b', 'h', 't', 'd_v', { grad = true }) }, key_mod = unit,
  delta = function(at, x) return sigmoid(x.r(at.b, at.h, at.t)) end, decay = function(at, x) return x.g(at.b, at.h, at.t, at.j) end }
