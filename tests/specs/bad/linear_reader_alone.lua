-- What is read of the state has to be written somewhere.
return linear_attention {
  inputs = { a = tensor("f32", "b", "h", "t", "d") },
  reader = function(k, at, x) return x.a(at.b, at.h, at.t, at.i) end, -- error: reader: goes with delta, or with a writer
}
