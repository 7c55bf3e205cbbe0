-- Three updates a token, the last first; a reader and a writer of each update, read before the decay of the token.
return linear_attention {
  updates = 3,
  reverse = true,
  read_first = true,
  inputs = { a = tensor("f32", "b", "h", "t", 3, { grad = true }), fade = tensor("f32", "h", { grad = true }) },
  key_mod = unit,
  decay   = function(at, x) return -0.1 - 0.2 * sigmoid(x.fade(at.h)) end,
  reader  = function(k, at, x) return -sigmoid(x.a(at.b, at.h, at.t, at.update)) * k end,
  writer  = function(k, at) return k * (1.0 - 0.1 * f32(at.update)) end,
}
