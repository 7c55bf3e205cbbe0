return attention {
  score_mod = function(s, at, x) return s + x.bias end, -- error: there is no input 'bias'
}
