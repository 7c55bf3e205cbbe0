return attention {
  score_mod = function(s, at)
    local t = {}
    return s + t.slope -- error: got nil
  end,
}
