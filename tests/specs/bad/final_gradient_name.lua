return attention {
  inputs = { dlse = scalar("f32") }, -- error: the input 'dlse' has the name of the gradient of the row value 'lse'; rename one
  score_mod = function(s, at, x) return s + x.dlse end,
}
