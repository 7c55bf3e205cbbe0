return attention {
  score_mod = function(s, at)
    return s - cumsum(s, 0) -- error: keys come in tiles of any order
  end,
}
