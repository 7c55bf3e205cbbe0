-- precond_kda.lua: Kimi Delta Attention that writes under m k, as precond_gated_delta does: a decay per key channel (FLA)
return linear_attention {
  inputs = { beta = tensor("float", "b", "h", "t", { grad = true, range = { 0.0, 1.0 } }),
             g = tensor("float", "b", "h", "t", "d", { grad = true }),
             m = tensor("float", "b", "h_k", "t", "d", { grad = true, range = { 0.66, 1.5 } }) },
  query_mod = unit,
  key_mod   = unit,
  decay     = function(at, x) return x.g(at.b, at.h, at.t, at.i) end,
  delta     = function(at, x) return x.beta(at.b, at.h, at.t) end,
  writer    = function(k, at, x) return x.m(at.b, at.h_k, at.t, at.i) * k end,
}
