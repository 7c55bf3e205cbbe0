return linear_attention { inputs = { g = tensor('float', 'b', 'h', 't', 'd', { grad = true }) }, -- leaves something of a piece
  decay = function(at, x) return 0.004 * max(x.g(at.b, at.h, at.t, at.i), -3.0) end }
