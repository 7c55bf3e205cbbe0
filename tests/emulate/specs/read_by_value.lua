return linear_attention { inputs = { g = tensor('float', 'b', 'h', 't', 'd_v', { grad = true }), a = tensor('float', 'b', 'h', 't', 'd', { grad = true, range = 'unit' }) },
  decay = function(at, x) return x.g(at.b, at.h, at.t, at.j) end,
  reader = function(_, at, x) return -x.a(at.b, at.h, at.t, at.i) end, writer = function(_, at, x) return x.a(at.b, at.h, at.t, at.i) end }
