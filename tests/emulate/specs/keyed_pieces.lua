-- keyed_pieces.lua: gates that leave nothing behind 64 tokens, but for some hundreds of tokens
local function unit(v) return v * rsqrt(dimsum(v * v) + 1e-6) end
return linear_attention {
  inputs    = { r = tensor("float", "b", "h", "t", { grad = true }), g = tensor("float", "b", "h", "t", "d", { grad = true }) },
  query_mod = unit,
  key_mod   = unit,
  delta     = function(at, x) return sigmoid(x.r(at.b, at.h, at.t)) end,
  decay     = function(at, x)
    local g = max(x.g(at.b, at.h, at.t, at.i), -3.0)
    return where(lt(abs(at.pos - 1400.0), 250.0), 0.02 * g, g - 0.5)
  end,
}
