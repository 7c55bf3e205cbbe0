return attention {
  inputs = { table = tensor("f32", "h", 128) },
  score_mod = function(s, at, x)
    return s + x.table(at.h, (at.q - at.kv) / 2) -- error: indices are integers
  end,
}
