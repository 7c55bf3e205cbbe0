return attention {
  score_mod = function(s, at) return where(s, 1.0, 0.0) end, -- error: where
}
