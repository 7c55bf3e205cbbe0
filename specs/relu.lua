-- relu.lua: weights relu(score) / n, every query sees every key (Wortsman et al. 2023)
return attention {
  online_func = elementwise_weights(relu),
  score_mod   = function(s, at) return s / at.len_kv end,
}
