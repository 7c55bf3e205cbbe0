-- softcap.lua: causal, scores kept within (-30, 30) by tanh (Gemma 2)
local CAP = param("CAP", 30.0)
return attention {
  mask_mod  = causal,
  score_mod = function(s) return CAP * tanh(s / CAP) end,
}
