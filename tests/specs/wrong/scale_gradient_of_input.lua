-- fails: backward in kernels: the gradient of 'a' is
return attention { inputs = { a = tensor("f32", "h", { grad = true, range = {-200.0, 200.0} }) }, mask_mod = causal,
  scale = function(at, x) return 0.1 / (1.0 + exp(-x.a(at.h))) end }
