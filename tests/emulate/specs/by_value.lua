return linear_attention { inputs = { g = tensor('float', 'b', 'h', 't', 'd_v', { grad = true }) },
  decay = function(at, x) return x.g(at.b, at.h, at.t, at.j) end }
