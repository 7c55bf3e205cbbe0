return attention {
  score_mod = function(s, at)
    for i = 1, at.h do -- error: a loop runs over plain numbers
      s = s * 2.0
    end
    return s
  end,
}
