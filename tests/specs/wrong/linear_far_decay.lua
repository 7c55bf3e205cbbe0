-- fails: f32 = double: at most 0, given 0.5 at token
return linear_attention { decay = function(at) return where(gt(at.pos, 5000), 0.5, -0.01) end }
