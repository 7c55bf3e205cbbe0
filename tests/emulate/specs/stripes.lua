return attention { mask_mod = function(at) return eq(at.kv % 7, at.q % 7) & (gt(at.h, 0) | lt(at.kv, 30)) end }
