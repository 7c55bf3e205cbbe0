-- block_mask.lua: a block of keys is seen by a block of queries where live[b, h, query block, key block] is 1; dead
-- blocks are neither read nor computed. block_lists.lua makes it from lists. FlexAttention's BlockMask.
local BLOCK = param("BLOCK", 64)

local function live(at, x) return eq(x.live(at.b, at.h, at.row // BLOCK, at.kv // BLOCK), 1) end
return attention {
  inputs = { live = tensor("u8", "b", "h", "q_blocks", "kv_blocks", { range = { 0, 2 } }) },
  mask_mod = live,
}
