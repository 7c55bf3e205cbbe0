-- delta_as_given.lua: the delta rule on q and k as they are given, and v beside o
return linear_attention {
  inputs     = { beta = tensor("float", "b", "h", "t", { grad = true }), skip = tensor("f32", "h", { grad = true }) },
  delta      = function(at, x) return x.beta(at.b, at.h, at.t) end,
  output_mod = function(o, at, x, v) return o + x.skip(at.h) * v end,
}
