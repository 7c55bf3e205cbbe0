return attention { mask_mod = function(at) return ge(at.kv, 100) & ge(at.q + 40, at.kv) end }
