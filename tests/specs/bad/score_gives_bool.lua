return attention {
  score_mod = function(s) return gt(s, 0.0) end, -- error: score_mod
}
