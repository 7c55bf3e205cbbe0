-- linear_skip.lua: by token, and v beside o, without a mod of v
return linear_attention {
  inputs     = { g = tensor("f32", "b", "h", "t", { grad = true }), skip = tensor("f32", "h", { grad = true }) },
  decay      = function(at, x) return -softplus(x.g(at.b, at.h, at.t)) end,
  output_mod = function(o, at, x, v) return o + x.skip(at.h) * v end,
}
