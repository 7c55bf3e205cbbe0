return attention { mask_mod = function(at) return lt(sin(0.03 * at.q), 0.5) & gt(sin(0.02 * at.kv), -0.7) end }
