return attention {
  score_mod = function(s)
    return s - rowmax(s) -- error: row reductions belong in online_fwd
  end,
}
