-- Each token makes one update where nothing else is said.
return linear_attention {
  inputs = { beta = tensor("float", "b", "h", "t", 2) },
  delta  = function(at, x) return x.beta(at.b, at.h, at.t, at.update) end, -- error: at.update goes with 'updates = n'
}
