return attention { score_mod = function(s, at) return s * cos(0.1 * (at.q - at.kv)) + 0.3 * at.h end }
