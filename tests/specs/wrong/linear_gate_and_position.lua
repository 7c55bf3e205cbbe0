-- warns: f32 = double: at at.pos = 
return linear_attention { inputs = { g = tensor('float', 'h', { range = { -inf, 0.0 } }) }, decay = function(at, x) return 1e-6 * f32(at.pos) + x.g(at.h) end }
