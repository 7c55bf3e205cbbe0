-- comba.lua: Comba: the delta rule whose reader is a part of the key and sees the state before the decay (Hu et al. 2025)
return linear_attention {
  inputs = { beta = tensor("float", "b", "h", "t", { grad = true }), g = tensor("float", "b", "h", "t", { grad = true }),
             part = tensor("f32", "h", { grad = true, range = { 0.0, 1.0 } }) },
  query_mod  = unit,
  key_mod    = unit,
  decay      = function(at, x) return x.g(at.b, at.h, at.t) end,
  delta      = function(at, x) return x.beta(at.b, at.h, at.t) end,
  reader     = function(k, at, x) return x.part(at.h) * k end,
  read_first = true,
}
