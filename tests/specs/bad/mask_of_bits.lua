return attention {
  mask_mod = function(at) return at.q & at.kv end, -- error: mask_mod: must return a bool such as ge(at.q, at.kv); it returns a number
}
