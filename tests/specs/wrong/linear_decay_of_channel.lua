-- warns: f32 = double: decay is 0.008 at at.i = 126
return linear_attention { decay = function(at) return -1.0 + 0.008 * f32(at.i) end }
