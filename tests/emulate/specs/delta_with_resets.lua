-- delta_with_resets.lua: betas of 0 and above 1; decays of 0, and some that leave nothing
return linear_attention {
  inputs    = { r = tensor("float", "b", "h", "t", { grad = true }), g = tensor("float", "b", "h", "t", { grad = true }) },
  query_mod = unit,
  key_mod   = unit,
  delta     = function(at, x) return clamp(x.r(at.b, at.h, at.t), 0.0, 1.5) end,
  decay     = function(at, x)
    local g = x.g(at.b, at.h, at.t)
    return where(lt(g, -1.5), -1e4, where(gt(g, -0.4), 0.0, g))
  end,
}
