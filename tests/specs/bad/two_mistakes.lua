return attention {
  mask_mod = function(at) return at.q >= at.kv end, -- error: write le(a, b) or ge(a, b)
  score_mod = function(s, at)
    return s * at.slope -- error: 'at' has no field 'slope'
  end,
}
