return attention {
  score_mod = function(s) return s + 4294967296 end, -- error: does not fit 32 bits
}
