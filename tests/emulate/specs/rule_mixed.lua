-- rule_mixed.lua: from the last token on, gates that are strong in some groups of 64 channels alone, a reader behind the decay, mods of v and o
local function unit(v) return v * rsqrt(dimsum(v * v) + 1e-6) end
return linear_attention {
  reverse    = true,
  inputs     = { r = tensor("float", "b", "h", "t", { grad = true }), g = tensor("float", "b", "h", "t", "d", { grad = true }),
                 e = tensor("float", "b", "h", "t", "d", { grad = true, range = { 0.0, 1.0 } }), skip = tensor("f32", "h", { grad = true }) },
  query_mod  = unit,
  key_mod    = unit,
  value_mod  = function(v) return silu(v) end,
  delta      = function(at, x) return sigmoid(x.r(at.b, at.h, at.t)) end,
  decay      = function(at, x) local g = x.g(at.b, at.h, at.t, at.i) return where(eq(at.i // 64, 1), 3.0 * g, max(0.2 * g, -2.0)) end,
  reader     = function(k, at, x) return x.e(at.b, at.h, at.t, at.i) * k end,
  output_mod = chain(function(o, at, x, v) return o + x.skip(at.h) * v end,
                     function(o, at) return o * rsqrt(dimsum(o * o) / at.d_v + 1.0) end),
}
