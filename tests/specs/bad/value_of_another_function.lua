local kept
return attention {
  score_mod = function(s)
    kept = s
    return s
  end,
  mask_mod = function(at)
    return ge(at.q - at.kv, kept) -- error: another function
  end,
}
