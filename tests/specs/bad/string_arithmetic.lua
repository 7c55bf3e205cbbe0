return attention {
  score_mod = function(s) return s * "2" end, -- error: got string
}
