-- natten_1d.lua: neighbourhood attention along a line: a query sees the `window_1` keys around it, moved inwards at the ends, dilation_1
-- apart (Hassani et al. 2023, Hassani and Shi 2022; NATTEN's na1d without causal axes)
local near = neighbours(1)
return attention {
  inputs   = neighbour_inputs(1),
  mask_mod = function(at, x) return near(at.q, at.kv, at.len_kv, x) end,
}
