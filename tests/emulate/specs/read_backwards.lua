return linear_attention { inputs = { g = tensor('float', 'b', 'h', 't', { grad = true }), a = tensor('float', 'b', 'h_k', 't', 'd', { grad = true, range = 'unit' }) },
  reverse = true, decay = function(at, x) return x.g(at.b, at.h, at.t) end, read_first = true,
  reader = function(_, at, x) return -x.a(at.b, at.h_k, at.t, at.i) end, writer = function(_, at, x) return 0.5 * x.a(at.b, at.h_k, at.t, at.i) end }
