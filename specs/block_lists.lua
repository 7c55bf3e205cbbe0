-- block_lists.lua: live(b, h, query block, key block) of block_mask, 1 or 0, from lists: the live key blocks of a query block
-- are the first counts(b, h, query block), up to 8192, of blocks(b, h, query block), rising. FlexAttention's kv_indices.
local lists = { counts = tensor("i32", "b", "h", "q_blocks", { range = { 0, 8193 } }),
                blocks = tensor("i32", "b", "h", "q_blocks", "most", { range = { 0, "kv_blocks" } }) }
local function live(v, at, x)
  local n, low = x.counts(at.b, at.h, at.q_blocks), 0
  local function block(i) return x.blocks(at.b, at.h, at.q_blocks, min(i, at.n_most - 1)) end
  for k = 12, 0, -1 do
    local next = low + (1 << k)
    low = where(lt(next, n) & le(block(next), at.kv_blocks), next, low)
  end
  return where(gt(n, 0) & eq(block(low), at.kv_blocks), 1, 0)
end
return elementwise { over = { "b", "h", "q_blocks", "kv_blocks" }, inputs = lists, results = { live = tensor("i32") }, forward = live }
