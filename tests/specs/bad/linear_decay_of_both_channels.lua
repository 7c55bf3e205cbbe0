return linear_attention {
  inputs = { a = tensor("f32", "h", "d"), b = tensor("f32", "h", "d_v") },
  decay  = function(at, x) return x.a(at.h, at.i) + x.b(at.h, at.j) end, -- error: decay: varies with the key channel at.i and with the value channel at.j
}
