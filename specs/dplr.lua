-- dplr.lua: diagonal decay plus low rank: what -kappa reads is written under kappa eta, beside v under k (DPLR of FLA)
return linear_attention {
  inputs = { g = tensor("float", "b", "h", "t", "d", { grad = true }),
             kappa = tensor("float", "b", "h", "t", "d", { grad = true, range = "unit" }),
             eta = tensor("float", "b", "h", "t", "d", { grad = true, range = { 0.0, 2.0 } }) },
  decay      = function(at, x) return x.g(at.b, at.h, at.t, at.i) end,
  reader     = function(_, at, x) return -x.kappa(at.b, at.h, at.t, at.i) end,
  writer     = function(_, at, x) return x.kappa(at.b, at.h, at.t, at.i) * x.eta(at.b, at.h, at.t, at.i) end,
  read_first = true,
}
