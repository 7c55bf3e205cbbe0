-- block_lists.lua: live(line, key block) of block_mask, 1 or 0, from lists: the live key blocks of a line (a query block of a
-- head of a batch) are the first counts(line), up to 8192, of blocks(line), rising. FlexAttention's kv_num_blocks, kv_indices.
local lists = { counts = tensor("i32", "lines", { range = { 0, 8193 } }),
                blocks = tensor("i32", "lines", "most", { range = { 0, "kv_blocks" }, sorted = "counts" }) }
local function live(v, at, x)
  local n, low = x.counts(at.lines), 0
  local function block(i) return x.blocks(at.lines, min(i, at.n_most - 1)) end
  for k = 12, 0, -1 do
    local next = low + (1 << k)
    low = where(lt(next, n) & le(block(next), at.kv_blocks), next, low)
  end
  return where(eq(block(low), at.kv_blocks), clamp(n, 0, 1), 0)
end
return elementwise { over = { "lines", "kv_blocks" }, inputs = lists, results = { live = tensor("i32") }, forward = live }
