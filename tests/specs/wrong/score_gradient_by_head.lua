-- fails: backward in kernels: the gradient of 'g' is
return attention { inputs = { g = tensor("float", "h", { grad = true }) },
  score_mod = function(s, at, x) return s / (1.0 + exp(-40.0 * x.g(at.h))) end }
