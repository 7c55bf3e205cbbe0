return attention { score_mod = function(s, at) return where(gt(at.kv, 2 * at.row + 60), s, -inf) end }
