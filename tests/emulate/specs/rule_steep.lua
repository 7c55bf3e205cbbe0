-- rule_steep.lua: the delta rule with a reader and a writer behind the decay; betas of 0, gates of 0 and gates that leave nothing of some
-- channels, or nothing at all
local function unit(v) return v * rsqrt(dimsum(v * v) + 1e-6) end
return linear_attention {
  inputs     = { r = tensor("float", "b", "h", "t", { grad = true }), g = tensor("float", "b", "h", "t", "d", { grad = true }),
                 e = tensor("float", "b", "h", "t", "d", { grad = true, range = { 0.0, 1.0 } }),
                 m = tensor("float", "b", "h_k", "t", "d", { grad = true, range = { 0.66, 1.5 } }) },
  query_mod  = unit,
  key_mod    = unit,
  delta      = function(at, x) return where(eq(at.pos % 5, 3), 0.0, clamp(x.r(at.b, at.h, at.t), 0.1, 1.0)) end,
  decay      = function(at, x)
    local g = x.g(at.b, at.h, at.t, at.i)
    local few = where(lt(g, -2.0), where(eq(at.pos % 5, 3), max(0.3 * g, -3.0), -1e4), where(gt(g, -0.4), 0.0, 0.3 * g))
    return where(eq(at.pos % 20, 16), -1e4, few)
  end,
  reader     = function(k, at, x) return x.e(at.b, at.h, at.t, at.i) * k end,
  writer     = function(k, at, x) return x.m(at.b, at.h_k, at.t, at.i) * k end,
}
