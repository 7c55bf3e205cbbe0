-- natten_3d.lua: neighbourhood attention in videos of n_2 x n_3 pictures, one behind the other: window_1 pictures, window_2 rows and window_3
-- columns around a query, moved inwards at the edges, dilation_1 to dilation_3 apart (Hassani et al. 2023; NATTEN's na3d)
local near = neighbours(3)
return attention {
  inputs   = neighbour_inputs(3),
  mask_mod = function(at, x) return near(at.q, at.kv, at.len_kv, x) end,
}
