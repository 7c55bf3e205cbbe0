-- error in file: the row value 'lse' or its gradient 'dlse' has the name of another argument
return attention {
  inputs = { dlse = scalar("f32") },
  score_mod = function(s, at, x) return s + x.dlse end,
}
