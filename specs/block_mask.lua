-- block_mask.lua: a block of keys is seen by a block of queries where live(b, h, query block, key block) is 1; dead blocks
-- are neither read nor computed. block_lists makes it of lists. FlexAttention's BlockMask, for any mask_mod beside it.
local BLOCK = param("BLOCK", 64)

local function live(at, x) return eq(x.live(at.b, at.h, at.row // BLOCK, at.kv // BLOCK), 1) end
return attention {
  inputs = { live = tensor("i32", "b", "h", "q_blocks", "kv_blocks", { range = { 0, 2 } }) },
  mask_mod = live,
}
