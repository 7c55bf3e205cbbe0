-- rope.lua: causal, rotary positions on pairs (i, i + d/2) of q and k (Su et al. 2021; the half-split form)
local LOG2_BASE = log2(10000.0)
local function rotate(lo, hi, at)
  local t = at.pos * exp2(-2.0 * LOG2_BASE * at.i / at.d)
  return lo * cos(t) - hi * sin(t), lo * sin(t) + hi * cos(t)
end
return attention { query_mod = half(rotate), key_mod = half(rotate), mask_mod = causal }
