-- graphormer.lua: nodes of a graph (Ying et al. 2021): a learned bias by the distance of a pair, and the mean of learned biases by the kinds of
-- the first HOPS edges on the way; path is -1 behind its end, and where it is left out there are no edges
local HOPS = param("HOPS", 4)
local function biased(s, at, x)
  local sum, count = 0.0, 0
  for hop = 0, HOPS - 1 do
    local kind = x.path(at.b, at.row, at.kv, hop)
    sum = sum + where(ge(kind, 0), x.edge(at.h, hop, max(kind, 0)), 0.0)
    count = count + where(ge(kind, 0), 1, 0)
  end
  return s + x.spatial(at.h, x.distance(at.b, at.row, at.kv)) + sum / max(count, 1)
end
return attention { score_mod = biased, inputs = {
  distance = tensor("i32", "b", "q", "kv", { range = { 0, "distances" } }), spatial = tensor("f32", "h", "distances", { grad = true }),
  path = tensor("i32", "b", "q", "kv", HOPS, { range = { -1, "kinds" }, default = -1 }), edge = tensor("f32", "h", HOPS, "kinds", { grad = true, optional = true }) } }
