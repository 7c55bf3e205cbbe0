return attention { inputs = { row = tensor('float', 'b', 'q') }, score_mod = function(s, at, x)
  return s + where(lt(x.row(at.b, at.row), 9.0), -1e30, 0.0)
end }
