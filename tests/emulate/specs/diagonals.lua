return linear_attention { key_mod = unit,
  inputs = { tt = tensor('float', 'b', 'h', 't', 't', { grad = true }),
             hh = tensor('float', 'b', 'h', 'h_k', 't', { grad = true }) },
  delta = function(at, x) return sigmoid(x.tt(at.b, at.h, at.t, at.t)) end,
  decay = function(at, x) return -0.05 - 0.3 * sigmoid(x.hh(at.b, at.h, at.h_k, at.t)) end }
