return attention { -- error: qk2 = true goes without the input 'q2', whose name or dim 'd' is that of a pair
  qk2 = true,
  inputs = { q2 = tensor("f32", "h") },
  score_mod = function(s, at, x) return s + x.q2(at.h) end,
}
