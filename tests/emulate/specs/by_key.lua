return linear_attention { inputs = { g = tensor('float', 'b', 'h', 't', 'd', { grad = true }) },
  decay = function(at, x) return x.g(at.b, at.h, at.t, at.i) end }
