return attention {
  score_mod = function(s)
    return s / dimsum(s * s) -- error: dimsum
  end,
}
