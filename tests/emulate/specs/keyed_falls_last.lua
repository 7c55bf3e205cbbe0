-- keyed_falls_last.lua: keyed_falls.lua where values fall ahead of the last piece: what little is left of them is the last state
local function unit(v) return v * rsqrt(dimsum(v * v) + 1e-6) end
local function above(v) return abs(v) + 0.1 end
return linear_attention {
  inputs    = { r = tensor("float", "b", "h", "t", { grad = true }), g = tensor("float", "b", "h", "t", "d", { grad = true }) },
  query_mod = chain(above, unit),
  key_mod   = chain(above, unit),
  value_mod = function(v, at) return (abs(v) + 0.1) * where(lt(at.pos, 2238), 2.0 ^ 60, 1.0) end,
  output_mod = function(o, at) return o * where(lt(at.pos, 2238), 2.0 ^ -60, where(lt(at.pos, 2304), 0.0, 1.0)) end,
  delta     = function(at, x) return 0.1 * sigmoid(x.r(at.b, at.h, at.t)) end,
  decay     = function(at, x) return max(x.g(at.b, at.h, at.t, at.i), -3.0) * 0.1 - 0.5 end,
}
