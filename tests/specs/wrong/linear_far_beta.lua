-- fails: f32 = double: beyond which the state may grow without end, given 3 at token
return linear_attention { key_mod = unit, delta = function(at) return where(gt(at.h, 20), 3.0, 0.5) end }
