local function unit(v) return v * rsqrt(dimsum(v * v) + 1e-6) end
return linear_attention { inputs = { r = tensor('float', 'b', 'h', 't', { grad = true }) }, query_mod = unit, key_mod = unit,
  delta = function(at, x) return sigmoid(x.r(at.b, at.h, at.t)) end }
