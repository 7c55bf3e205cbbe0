local function unit(v) return v * rsqrt(dimsum(v * v) + 1e-6) end -- gates of 0, and some that leave nothing; mods of q and k
return linear_attention { inputs = { g = tensor('float', 'b', 'h', 't', { grad = true }), s = tensor('f32', 'h', { grad = true }) }, query_mod = unit,
  key_mod = chain(unit, function(k, at, x) return k * exp(0.3 * x.s(at.h_k)) end),
  decay = function(at, x) local g = x.g(at.b, at.h, at.t)
    return where(lt(g, -1.5), -1e4, where(gt(g, -0.4), 0.0, g)) end }
