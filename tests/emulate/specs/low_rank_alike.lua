-- low_rank_alike.lua: what is removed is alike from token to token, gates so weak that they never forget it, rates near 2
local function unit(v) return v * rsqrt(dimsum(v * v) + 1e-6) end
return linear_attention {
  inputs  = { g = tensor("float", "b", "h", "t", "d", { grad = true }), r = tensor("float", "b", "h", "t", { grad = true }) },
  key_mod = chain(function(k) return k + 1.5 end, unit),
  decay   = function(at, x) return 0.02 * max(x.g(at.b, at.h, at.t, at.i), -3.0) end,
  reader  = function(k) return -k end,
  writer  = function(k, at, x) return (1.0 + sigmoid(x.r(at.b, at.h, at.t))) * k end,
}
