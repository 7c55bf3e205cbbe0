-- sinks.lua: causal, with a learned logit per head that joins the denominator (gpt-oss)
return attention {
  inputs      = { sink = tensor("f32", "h", { grad = true }) },
  mask_mod    = causal,
  online_func = softmax_with_sink(function(at, x) return x.sink(at.h) end),
}
