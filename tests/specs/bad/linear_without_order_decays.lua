return linear_attention {
  inputs = { u = tensor("f32", "h", "d"), g = tensor("f32", "b", "h", "t") },
  causal = false,
  decay  = function(at, x) return -exp(x.g(at.b, at.h, at.t)) end, -- error: decay: goes with causal = true alone
  bonus  = function(at, x) return 2.0 * x.u(at.h, at.i) end, -- error: bonus: goes with causal = true alone
}
