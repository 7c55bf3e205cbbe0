-- warns: f32 = double: decay is 1e-05 at at.pos = 10001
return linear_attention { decay = function(at) return -0.1 + 1e-5 * f32(at.pos) end }
