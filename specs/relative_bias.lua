-- relative_bias.lua: T5's learned bias by bucket of the distance (Raffel et al. 2019, bidirectional, 32 buckets): distances below
-- 8 have a bucket each, larger ones share logarithmic buckets up to 128; keys after the query use buckets 16 to 31
local function bucket(at)
  local distance = at.q - at.kv
  local n = abs(distance)
  local large = 8 + i32(2.0 * log2(max(n, 8) / 8.0) + 1e-3)   -- 8 log(n / 8) / log(128 / 8), rounding kept off the edges
  return where(lt(distance, 0), 16, 0) + where(lt(n, 8), n, min(large, 15))
end
return attention {
  inputs    = { table = tensor("f32", "h", 32, { grad = true }) },
  score_mod = function(s, at, x) return s + x.table(at.h, bucket(at)) end,
}
