-- warns: f32 = double: delta is 2.001 at at.pos = 2001
return linear_attention { delta = function(at) return 0.001 * f32(at.pos) end, key_mod = function(k) return k * rsqrt(dimsum(k * k) + 1e-6) end }
