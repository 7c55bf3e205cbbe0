return attention {
  score_mod = function(s, at)
    if s then -- error: 'if' cannot be traced
      return s * 2.0
    end
    return s
  end,
}
