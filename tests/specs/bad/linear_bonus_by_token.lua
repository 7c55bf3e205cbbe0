return linear_attention {
  inputs = { u = tensor("f32", "h", "t") },
  bonus  = function(at, x) return x.u(at.h, at.t) end, -- error: 'at' has no field 't' here
}
