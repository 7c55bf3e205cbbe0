-- rule_behind.lua: a reader and a writer made of a key that resembles the others, behind weak gates
local function unit(v) return v * rsqrt(dimsum(v * v) + 1e-6) end
return linear_attention {
  inputs    = { r = tensor("float", "b", "h", "t", { grad = true }), g = tensor("float", "b", "h", "t", "d", { grad = true }),
                e = tensor("float", "b", "h", "t", "d", { grad = true, range = { 0.0, 1.0 } }), low = tensor("f32", "h", "d", { grad = true }),
                m = tensor("float", "b", "h_k", "t", { grad = true, range = { 0.66, 1.5 } }) },
  query_mod = unit,
  key_mod   = chain(function(k) return k + 1.5 end, unit),
  delta     = function(at, x) return sigmoid(x.r(at.b, at.h, at.t)) end,
  decay     = function(at, x) return 0.02 * max(x.g(at.b, at.h, at.t, at.i), -3.0) end,
  reader    = function(k, at, x) return x.e(at.b, at.h, at.t, at.i) * k + 0.1 * x.low(at.h, at.i) * sin(k) end,
  writer    = function(k, at, x) return x.m(at.b, at.h_k, at.t) * k end,
}
