local function phi(v) return exp(0.5 * v) end
return linear_attention { inputs = { g = tensor('float', 'b', 'h', 't', 'd', { grad = true }) }, query_mod = phi, key_mod = phi, normalise = true,
  decay = function(at, x) return 0.5 * x.g(at.b, at.h, at.t, at.i) end,
  output_mod = function(o, at, x) return 2.0 * o + 0.1 end }
