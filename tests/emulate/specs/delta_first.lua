return linear_attention { inputs = { r = tensor('float', 'b', 'h', 't', { grad = true }), g = tensor('float', 'b', 'h', 't', { grad = true }) },
  key_mod = unit, delta = function(at, x) return sigmoid(x.r(at.b, at.h, at.t)) end, decay = function(at, x) return x.g(at.b, at.h, at.t) end, read_first = true }
