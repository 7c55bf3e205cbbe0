return linear_attention { decay = function(at) return log(1.0 - exp2(-2.0 - at.h)) end }
