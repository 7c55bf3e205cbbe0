return attention { inputs = { big = scalar('f32') },
  score_mod = function(s, at, x) return where(lt(at.kv, 64), -exp(x.big + 60.0), s) end }
