return attention {
  mask_mod = function(at) return f32(at.q) & at.kv end, -- error: &: takes bools, such as lt(a, b), or integers; got a float
}
