return attention {
  mask_mod = function(at) return at.q & at.kv end, -- error: &
}
