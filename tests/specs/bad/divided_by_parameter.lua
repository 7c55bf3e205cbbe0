local BLOCK = param("BLOCK", -64)
local ZERO = param("ZERO", 0)
return attention {
  mask_mod = function(at) return eq(at.q // BLOCK, at.kv // 64) end, -- error: // by parameter 'BLOCK', which is -64: give it a number of at least 1
  score_mod = function(s, at) return s + at.kv % ZERO end, -- error: % by parameter 'ZERO', which is 0: give it a number of at least 1
}
