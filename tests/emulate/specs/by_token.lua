return linear_attention { inputs = { g = tensor('float', 'b', 'h', 't', { grad = true }) },
  decay = function(at, x) return x.g(at.b, at.h, at.t) end }
