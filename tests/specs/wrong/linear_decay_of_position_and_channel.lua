-- warns: f32 = double: decay is 0.000215 at at.pos = 393, at.i = 255
return linear_attention { decay = function(at) return -0.1 + 1e-6 * f32(at.pos) * f32(at.i) end }
