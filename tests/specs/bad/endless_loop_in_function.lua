return attention {
  score_mod = function(s)
    for i = 1, 1000000000 do end -- error: endless loop
    return s
  end,
}
