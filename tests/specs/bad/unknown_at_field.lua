return attention {
  score_mod = function(s, at) return s + at.kvx end, -- error: 'at' has no field 'kvx'
}
