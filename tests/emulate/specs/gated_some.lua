-- gated_some.lua: the same gates, but of every second head a hundredth of them
return linear_attention {
  inputs    = { r = tensor("float", "b", "h", "t", { grad = true }), u = tensor("float", "b", "h", "t", { grad = true }) },
  query_mod = unit,
  key_mod   = unit,
  delta     = function(at, x) return sigmoid(x.r(at.b, at.h, at.t)) end,
  decay     = function(at, x)
    return where(eq(at.h % 2, 1), 0.00125, 0.125) * log(sigmoid(x.u(at.b, at.h, at.t)))
  end,
}
