-- softmax_one.lua: causal, denominator 1 + sum exp(s): a row may attend to nothing (Miller 2023)
return attention {
  mask_mod    = causal,
  online_func = softmax_with_sink(function() return 0.0 end),
}
