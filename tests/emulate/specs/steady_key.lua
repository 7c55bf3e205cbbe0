-- steady_key.lua: decays that leave half of a block of 16 tokens: pairs within one are most of what dv is a sum of
return linear_attention {
  inputs = { g = tensor("float", "b", "h", "t", "d", { grad = true }) },
  decay  = function(at, x) return 0.4 * max(x.g(at.b, at.h, at.t, at.i), -1.25) end,
}
