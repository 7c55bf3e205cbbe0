-- delta_mods.lua: the delta rule with mods of q and k that make something of zeros, pairs of some channels, and are of several stages
local function turn(lo, hi, at)
  local a = at.pos * exp2(-0.25 * at.i)
  return lo * cos(a) - hi * sin(a), lo * sin(a) + hi * cos(a)
end
return linear_attention {
  inputs    = { r = tensor("float", "b", "h", "t", { grad = true }), gain = tensor("f32", "h_k", "d") },
  query_mod = chain(function(q, at) return q + cos(at.t) end, interleaved(turn)),
  key_mod   = chain(function(k, at, x) return k + x.gain(at.h_k, at.i) end, half(turn, 16), unit),
  delta     = function(at, x) return sigmoid(x.r(at.b, at.h, at.t)) end,
}
