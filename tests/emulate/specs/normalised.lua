local function phi(v) return exp(0.5 * v) end
return linear_attention { inputs = { g = tensor('float', 'b', 'h', 't', { grad = true }) }, query_mod = phi, key_mod = phi, normalise = true,
  decay = function(at, x) return x.g(at.b, at.h, at.t) end }
