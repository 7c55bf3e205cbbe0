-- relative_bias.lua: T5's learned bias by bucket of the distance (Raffel et al. 2019, bidirectional, 32 buckets): distances below
-- 8 have a bucket each, larger ones share logarithmic buckets up to 128; keys after the query use buckets 16 to 31
local EDGES = { 12, 16, 23, 32, 46, 64, 91 }   -- from 8 * 2^(k / 2) on, where 8 log(n / 8) / log(128 / 8) is k: integers, so nothing rounds
local function bucket(at)
  local distance = at.q - at.kv
  local n = abs(distance)
  local large = 8
  for _, edge in ipairs(EDGES) do large = large + where(ge(n, edge), 1, 0) end
  return where(lt(distance, 0), 16, 0) + where(lt(n, 8), n, large)
end
return attention {
  inputs    = { table = tensor("f32", "h", 32, { grad = true }) },
  score_mod = function(s, at, x) return s + x.table(at.h, bucket(at)) end,
}
