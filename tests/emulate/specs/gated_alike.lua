-- gated_alike.lua: four tokens of eight with the same key, the others with one like it; weak gates, betas near 2 and near 1 in turns
return linear_attention {
  inputs    = { r = tensor("float", "b", "h", "t", { grad = true }), g = tensor("float", "b", "h", "t", { grad = true }) },
  query_mod = unit,
  key_mod   = chain(function(k, at) return where(lt(at.pos % 8, 4), 1.0, 0.2 * k + 1.0) end, unit),
  delta     = function(at, x) return where(lt(at.pos % 64, 32), 2.0, 1.0) - 0.1 * sigmoid(x.r(at.b, at.h, at.t)) end,
  decay     = function(at, x) return 0.02 * min(max(x.g(at.b, at.h, at.t), -3.0), 0.0) end,
}
