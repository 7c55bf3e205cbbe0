return attention {
  inputs = { bias = tensor("f32", "h", "page") }, -- error: 'page' is a size or an argument of some calls of attention
  score_mod = function(s, at, x) return s + x.bias(at.h, at.q % 2) end,
}
