return attention {
  score_mod = function(s) return clamp(s, 1.0) end, -- error: clamp takes 3 arguments, got 2
}
