return attention { mask_mod = causal, score_mod = function(s, at) return s + 1.5 * at.kv end }
