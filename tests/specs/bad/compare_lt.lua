return attention {
  score_mod = function(s, at)
    local near = at.q - at.kv < 16 -- error: write lt(a, b) or gt(a, b)
    return where(near, s, 0.0)
  end,
}
