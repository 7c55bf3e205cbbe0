-- sandwich.lua: causal, with the inner product of sinusoidal positions as bias: n_h / (8 (h + 1)) * sum over D / 2 frequencies of
-- cos((q - kv) / 10000^(2 i / D)) (Chi et al. 2023)
local D = param("D", 128)
local function bias(at)
  local sum = 0.0
  for i = 0, D // 2 - 1 do sum = sum + cos((at.q - at.kv) * 10000.0 ^ (-2.0 * i / D)) end
  return sum * at.n_h / (8.0 * (at.h + 1))
end
return attention { mask_mod = causal, score_mod = function(s, at) return s + bias(at) end }
