return attention {
  score_mod = function(s)
    while s do -- error: 'while' cannot be traced
      s = s - 1.0
    end
    return s
  end,
}
