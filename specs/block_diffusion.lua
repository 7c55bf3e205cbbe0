-- block_diffusion.lua: training of block diffusion (BD3-LM, Arriola et al. 2025): noised tokens, then as many clean ones, in blocks of `block`. A
-- noised token sees its own noised block and the clean ones before it; a clean token sees its own clean block and those before it
local function sees(at, x)
  local n = at.len_kv // 2
  local noised, other = lt(at.q, n), lt(at.kv, n)
  local mine = where(noised, at.q, at.q - n) // x.block
  local its = where(other, at.kv, at.kv - n) // x.block
  return (noised & other & eq(mine, its)) | (~other & lt(its, mine + where(noised, 0, 1)))
end
return attention { inputs = { block = scalar("i32", { default = 16, range = { 1, 1 << 24 } }) }, mask_mod = sees }
