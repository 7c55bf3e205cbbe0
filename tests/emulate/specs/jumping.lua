return attention { score_mod = function(s, at)
  return s + where(eq(at.kv, 97 + at.row % 400), 300.0, 0.0) + where(eq(at.kv, 40), 70.0, 0.0)
end }
