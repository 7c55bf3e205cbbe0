local W = param("W", 256)
return attention {
  mask_mod = function(at, x) return lt(at.q - at.kv, x.W) end, -- error: it is a parameter of this spec, a number
}
