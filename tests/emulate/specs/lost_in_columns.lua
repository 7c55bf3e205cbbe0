return attention { inputs = { column = tensor('float', 'h', 'kv') }, score_mod = function(s, at, x)
  return s + where(lt(x.column(at.h, at.kv), 9.0), -1e30, 0.0)
end }
