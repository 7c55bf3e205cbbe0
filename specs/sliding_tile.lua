-- sliding_tile.lua: sliding tile attention (Zhang et al. 2025): a video in tiles of `tile` tokens, one tile behind the other, n_2 x n_3 of them a
-- step of time; a tile sees window_1 x window_2 x window_3 tiles around it, moved inwards at the edges. The last `text` tokens see all and
-- are seen by all
local near, inputs = neighbours(3), neighbour_inputs(3)
inputs.tile = scalar("i32", { default = 384, range = { 1, 1 << 24 } }) -- 6 x 8 x 8
inputs.text = scalar("i32", { default = 0 })
local function video(at, x)
  return near(at.q // x.tile, at.kv // x.tile, (at.len_kv - x.text) // x.tile, x)
end
local function text(at, x) return ge(max(at.q, at.kv), at.len_kv - x.text) end
return attention { inputs = inputs, mask_mod = either(video, text) }
