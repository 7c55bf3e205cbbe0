return attention {
  scale = function(at) return rsqrt(at.kv + 1) end, -- error: 'at' has no field 'kv'
}
