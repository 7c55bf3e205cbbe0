-- delta_queries.lua: the delta rule with a mod of q alone, of keys that are short as they are
return linear_attention {
  inputs    = { r = tensor("float", "b", "h", "t", { grad = true }) },
  query_mod = unit,
  delta     = function(at, x) return 0.02 * sigmoid(x.r(at.b, at.h, at.t)) end,
}
