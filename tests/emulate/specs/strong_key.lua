-- strong_key.lua: decays so strong that a token's pair with itself is most of what its gates' gradient is a difference of
return linear_attention {
  inputs = { g = tensor("float", "b", "h", "t", "d", { grad = true }) },
  decay  = function(at, x) return 4.0 * max(x.g(at.b, at.h, at.t, at.i), -1.25) end,
}
