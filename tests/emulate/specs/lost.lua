return attention { inputs = { big = scalar('f32') }, score_mod = function(s, at, x) return s - exp(x.big + 60.0) end }
