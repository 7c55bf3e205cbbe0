-- retention_linear.lua: recurrent form of retention: gamma_h = 1 - 2^(-5 - h) (Sun et al. 2023; retention of FLA, of AttentionEngine)
return linear_attention { decay = function(at) return log(1.0 - exp2(-5.0 - at.h)) end }
