-- alibi.lua: causal, with a penalty linear in distance; slope 2^(-8 (h + 1) / n_h) (Press et al. 2021)
local function slope(at) return exp2(-8.0 * (at.h + 1) / at.n_h) end
return attention {
  mask_mod  = causal,
  score_mod = function(s, at) return s - slope(at) * (at.q - at.kv) end,
}
