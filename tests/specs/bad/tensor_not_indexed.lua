return attention {
  inputs = { slopes = tensor("f32", "h") },
  score_mod = function(s, at, x) return s * x.slopes end, -- error: a tensor input that was not indexed
}
