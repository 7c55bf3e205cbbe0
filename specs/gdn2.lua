-- gdn2.lua: Gated DeltaNet 2: an erase gate for each key channel, a write gate for each value channel (2026); one for all: KDA
return linear_attention {
  inputs = { g = tensor("float", "b", "h", "t", "d", { grad = true }),
             erase = tensor("float", "b", "h", "t", "d", { grad = true, range = { 0.0, 1.0 } }),
             write = tensor("float", "b", "h", "t", "d_v", { grad = true, range = { 0.0, 1.0 } }) },
  query_mod = unit,
  key_mod   = unit,
  value_mod = function(v, at, x) return x.write(at.b, at.h, at.t, at.i) * v end,
  decay     = function(at, x) return x.g(at.b, at.h, at.t, at.i) end,
  delta     = function() return 1.0 end,
  reader    = function(k, at, x) return x.erase(at.b, at.h, at.t, at.i) * k end,
}
