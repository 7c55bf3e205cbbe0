return attention {
  score_mod = function(s) return fmod(s, 2.0) end, -- error: unknown name 'fmod'; write a % b, which has the sign of b
}
