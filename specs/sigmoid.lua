-- sigmoid.lua: weights sigmoid(score + bias) instead of softmax; bias -log(n) keeps rows near sum 1 (Ramapuram et al. 2024)
return attention {
  inputs      = { bias = scalar("f32", { grad = true, default = 0.0 }) },
  mask_mod    = causal,
  online_func = elementwise_weights(sigmoid),
  score_mod   = function(s, at, x) return s + x.bias end,
}
