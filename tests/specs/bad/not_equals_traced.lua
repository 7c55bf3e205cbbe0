return attention {
  score_mod = function(s, at)
    local apart = at.h ~= 0 -- error: write ne(a, b)
    return where(apart, s, 2.0 * s)
  end,
}
