-- rwkv7.lua: RWKV-7: q is r; w the logarithm of the decay; kappa, of length 1, is removed at the rate eta (Peng et al. 2025)
return linear_attention {
  inputs = { w = tensor("float", "b", "h", "t", "d", { grad = true }),
             kappa = tensor("float", "b", "h", "t", "d", { grad = true, range = "unit" }),
             eta = tensor("float", "b", "h", "t", "d", { grad = true, range = { 0.0, 1.0 } }) },
  scale      = 1.0,
  decay      = function(at, x) return x.w(at.b, at.h, at.t, at.i) end,
  reader     = function(_, at, x) return -x.kappa(at.b, at.h, at.t, at.i) end,
  writer     = function(_, at, x) return x.kappa(at.b, at.h, at.t, at.i) * x.eta(at.b, at.h, at.t, at.i) end,
  read_first = true,
}
