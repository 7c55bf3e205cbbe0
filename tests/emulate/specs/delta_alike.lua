-- delta_alike.lua: keys that are nearly one and are never forgotten, betas near 1 and near 2, 32 tokens of each
return linear_attention {
  inputs    = { r = tensor("float", "b", "h", "t", { grad = true }) },
  query_mod = unit,
  key_mod   = chain(function(k) return 0.1 * k + 1.0 end, unit),
  delta     = function(at, x) return where(lt(at.pos % 64, 32), 1.0, 2.0) - 0.1 * sigmoid(x.r(at.b, at.h, at.t)) end,
}
