return attention {
  score_mod = function(s) return s .. 1 end, -- error: '..' cannot be traced
}
