-- sigmoid_full.lua: specs/sigmoid.lua without its mask, to stand beside plain softmax without one
return attention {
  inputs      = { bias = scalar("f32", { grad = true, default = 0.0 }) },
  online_func = elementwise_weights(sigmoid),
  score_mod   = function(s, at, x) return s + x.bias end,
}
