-- gated_soft.lua: gates as models have them, logsigmoid(normal) / 8: 2^-46 of a state is left behind some 320 tokens
return linear_attention {
  inputs    = { r = tensor("float", "b", "h", "t", { grad = true }), u = tensor("float", "b", "h", "t", { grad = true }) },
  query_mod = unit,
  key_mod   = unit,
  delta     = function(at, x) return sigmoid(x.r(at.b, at.h, at.t)) end,
  decay     = function(at, x) return 0.125 * log(sigmoid(x.u(at.b, at.h, at.t))) end,
}
