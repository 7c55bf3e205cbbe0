return attention { score_mod = function(s, at) return s + 0.2 * at.kv end }
