return attention {
  inputs = { seed = scalar("f32") },
  score_mod = function(s, at, x) return s + random(x.seed, at.b, at.h, at.q, at.kv) end, -- error: random: takes integers, got a float
}
