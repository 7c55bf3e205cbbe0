return attention {
  score_mod = function(s) local t = s * 2.0 end, -- error: score_mod
}
