-- gated_cut.lua: gates that forget within 64 tokens, but in the middle of a sequence, of odd heads for 100 tokens and of every third one
-- for 500
return linear_attention {
  inputs    = { r = tensor("float", "b", "h", "t", { grad = true }), g = tensor("float", "b", "h", "t", { grad = true }) },
  query_mod = unit,
  key_mod   = unit,
  delta     = function(at, x) return 2.0 * sigmoid(x.r(at.b, at.h, at.t)) end,
  decay     = function(at, x)
    local g = min(max(x.g(at.b, at.h, at.t), -3.0), 0.0)
    local few = where(eq(at.h % 3, 2), 250.0, where(eq(at.h % 2, 1), 50.0, 0.0))
    return where(lt(abs(at.pos - 1400.0), few), 0.02 * g, g - 0.5)
  end,
}
