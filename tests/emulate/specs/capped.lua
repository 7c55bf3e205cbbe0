return attention { mask_mod = causal, score_mod = function(s) return clamp(s, -40.0, 40.0) end }
