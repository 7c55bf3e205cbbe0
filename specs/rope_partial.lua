-- rope_partial.lua: causal, rotary positions on the first 16 elements of q and k alone, pairs (i, i + 8), as GPT-NeoX has
-- them (Black et al. 2022; rotary_pct 0.25 of a head dim of 64)
local N, LOG2_BASE = 16, log2(10000.0)
local function rotate(lo, hi, at)
  local t = at.pos * exp2(-2.0 * LOG2_BASE * at.i / N)
  return lo * cos(t) - hi * sin(t), lo * sin(t) + hi * cos(t)
end
return attention { query_mod = half(rotate, N), key_mod = half(rotate, N), mask_mod = causal }
