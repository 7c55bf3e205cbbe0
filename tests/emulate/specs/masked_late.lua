return attention { score_mod = function(s, at)
  return s + where(gt(at.kv, 2 * at.row + 60), 0.0, -1e30)
end }
