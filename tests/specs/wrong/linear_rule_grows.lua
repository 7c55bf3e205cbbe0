-- warns: chunks = recurrence: -<reader, writer> goes from -
return linear_attention {
  inputs = { a = tensor("float", "b", "h", "t", "d") },
  reader = function(k, at, x) return x.a(at.b, at.h, at.t, at.i) end,
  writer = function(k) return k end,
}
