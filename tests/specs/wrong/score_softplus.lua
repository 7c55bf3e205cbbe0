-- fails: f32 = double: a score of
return attention { score_mod = function(s) return log(1.0 + exp(s)) end }
