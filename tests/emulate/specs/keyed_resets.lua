-- keyed_resets.lua: betas of 0 and above 1; gates of 0, some that leave nothing of a channel, some that leave nothing at all: at tokens that
-- write, for in chunks nothing is 1e-31 of what it was
local function unit(v) return v * rsqrt(dimsum(v * v) + 1e-6) end
return linear_attention {
  inputs    = { r = tensor("float", "b", "h", "t", { grad = true }), g = tensor("float", "b", "h", "t", "d", { grad = true }) },
  query_mod = unit,
  key_mod   = unit,
  delta     = function(at, x) return where(eq(at.pos % 5, 3), 0.0, clamp(x.r(at.b, at.h, at.t), 0.1, 1.5)) end,
  decay     = function(at, x)
    local g = x.g(at.b, at.h, at.t, at.i)
    local few = where(lt(g, -2.0), where(eq(at.pos % 5, 3), max(0.3 * g, -3.0), -1e4), where(gt(g, -0.4), 0.0, 0.3 * g))
    return where(eq(at.pos % 20, 16), -1e4, few)
  end,
}
