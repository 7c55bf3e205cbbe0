-- fails: f32 = double: a score of
return attention { inputs = { a = tensor("f32", "h", "kv", { grad = true }) }, mask_mod = causal,
  score_mod = function(s, at, x) return s + log(1.0 + exp(10.0 * x.a(at.h, at.kv))) end }
