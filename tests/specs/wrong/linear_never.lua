-- warns: not seen: lt was never true
return linear_attention { decay = function(at) return where(lt(at.len_t, 0), -1.0, -0.01) end }
