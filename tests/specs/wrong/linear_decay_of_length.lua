-- warns: f32 = double: decay is 1677.2216 at at.pos = 0, at.len_t = 16777216
return linear_attention { decay = function(at) return -0.5 + 1e-4 * f32(at.len_t - at.pos) end }
