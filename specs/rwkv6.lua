-- rwkv6.lua: RWKV-6: q is r; w the natural logarithm of the decay, <= 0; u weighs a token's own pair, read before the update (Peng et al. 2024)
return linear_attention {
  inputs = { w = tensor("float", "b", "h", "t", "d", { grad = true }), u = tensor("f32", "h", "d", { grad = true }) },
  scale  = 1.0,
  decay  = function(at, x) return x.w(at.b, at.h, at.t, at.i) end,
  bonus  = function(at, x) return x.u(at.h, at.i) end,
}
