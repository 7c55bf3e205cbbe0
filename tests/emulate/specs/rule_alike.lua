-- rule_alike.lua: keys that resemble each other, gates so weak that they never forget it, betas near 2, reading ahead of the decay
local function unit(v) return v * rsqrt(dimsum(v * v) + 1e-6) end
return linear_attention {
  inputs     = { r = tensor("float", "b", "h", "t", { grad = true }), g = tensor("float", "b", "h", "t", "d", { grad = true }) },
  query_mod  = unit,
  key_mod    = chain(function(k) return k + 1.5 end, unit),
  delta      = function(at, x) return 1.0 + sigmoid(x.r(at.b, at.h, at.t)) end,
  decay      = function(at, x) return 0.02 * max(x.g(at.b, at.h, at.t, at.i), -3.0) end,
  read_first = true,
}
