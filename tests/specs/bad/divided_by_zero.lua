return attention {
  mask_mod = function(at) return eq(at.q // 0, at.kv // -8) end, -- error: // by 0 has no value: divide by another number
}
