return attention { mask_mod = causal, value_mod = function(v, at) return v * sigmoid(v) + 0.01 * at.pos end }
