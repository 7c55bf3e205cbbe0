return attention {
  mask_mod = function(at) return at.kv <= at.q end, -- error: write le(a, b) or ge(a, b)
}
