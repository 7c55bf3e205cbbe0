-- warns: f32 = double: decay is nan at at.pos = 100001
return linear_attention { decay = function(at) return log(1.0 - 1e-5 * f32(at.pos)) end }
