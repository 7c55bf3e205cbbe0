return attention { score_mod = function(s, at) return s - 0.3 * at.kv end }
