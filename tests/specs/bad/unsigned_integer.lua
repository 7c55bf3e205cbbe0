return attention {
  mask_mod = function(at) return lt(at.kv * 0x9e3779b9, 0) end, -- error: or i32(2654435769) for the integer of the same bits
}
