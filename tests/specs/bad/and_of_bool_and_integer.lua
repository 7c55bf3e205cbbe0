return attention {
  mask_mod = function(at) return ge(at.q, at.kv) & at.h end, -- error: &: takes two bools or two integers, got one of each
}
