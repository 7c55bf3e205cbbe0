-- nsa_compressed.lua: attention to compressed blocks, one key for each BLOCK keys, of which a query sees those that are complete (Yuan et al.
-- 2025). The gradient of `importance` for dlse = 1 and do = 0 is what each block weighs, summed over the heads of a group
local BLOCK = param("BLOCK", 64)
local function complete(at, x) return lt(at.kv, (at.row + x.past(at.b) + 1) // BLOCK) end
return attention {
  inputs = { past = tensor("i32", "b", { optional = true }),
             importance = tensor("f32", "b", "h_kv", "q", "kv", { optional = true, grad = true }) },
  mask_mod = complete,
  score_mod = function(s, at, x) return s + x.importance(at.b, at.h_kv, at.row, at.kv) end,
}
