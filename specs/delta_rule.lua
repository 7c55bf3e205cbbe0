-- delta_rule.lua: DeltaNet: beta of 0 to 1, to 2 for negative eigenvalues; q and k of length 1 (Schlag et al. 2021; Yang et al. 2024)
return linear_attention {
  inputs    = { beta = tensor("float", "b", "h", "t", { grad = true }) },
  query_mod = unit,
  key_mod   = unit,
  delta     = function(at, x) return x.beta(at.b, at.h, at.t) end,
}
