-- nsa_selected.lua: causal within blocks(b, h_kv, query, i) of BLOCK keys each, which the heads of a group share; -1 is none (Yuan et al. 2025)
local BLOCK, BLOCKS = param("BLOCK", 64), param("BLOCKS", 16)
local function selected(at, x)
  local any = eq(x.blocks(at.b, at.h_kv, at.row, 0), at.kv // BLOCK)
  for i = 1, BLOCKS - 1 do any = any | eq(x.blocks(at.b, at.h_kv, at.row, i), at.kv // BLOCK) end
  return any
end
return attention {
  inputs = { blocks = tensor("i32", "b", "h_kv", "q", BLOCKS, { range = { -1, "kv + 1" } }) },
  mask_mod = both(causal, selected),
}
