return attention { mask_mod = function(at) return lt(sin(2.0 * at.h), 0.5) & le(at.kv, at.q) end }
