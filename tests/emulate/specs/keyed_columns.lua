-- keyed_columns.lua: values whose first 16 channels are a thousandth of the others: what scales the state has to look at all of them
return linear_attention {
  inputs    = { r = tensor("float", "b", "h", "t", { grad = true }), g = tensor("float", "b", "h", "t", "d", { grad = true }) },
  value_mod = function(v, at) return v * where(lt(at.i, 16), 0.001, 1.0) end,
  delta     = function(at, x) return 0.02 * sigmoid(x.r(at.b, at.h, at.t)) end,
  decay     = function(at, x) return 0.2 * max(x.g(at.b, at.h, at.t, at.i), -3.0) end,
}
