-- A reader has key channels alone.
return linear_attention {
  inputs = { a = tensor("f32", "b", "h", "t", "d_v") },
  reader = function(k, at, x) return k * x.a(at.b, at.h, at.t, at.j) end, -- error: 'at' has no field 'j'
  writer = function(k) return k end,
}
