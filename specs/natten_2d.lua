-- natten_2d.lua: neighbourhood attention on pictures of n_2 columns, row by row: window_1 rows and window_2 columns around a query, moved
-- inwards at the edges, dilation_1 and dilation_2 apart (Hassani et al. 2023, Hassani and Shi 2022; NATTEN's na2d)
local near = neighbours(2)
return attention {
  inputs   = neighbour_inputs(2),
  mask_mod = function(at, x) return near(at.q, at.kv, at.len_kv, x) end,
}
