return attention { score_mod = function(s) return 3.0 * tanh(s) + 4.0 end }
