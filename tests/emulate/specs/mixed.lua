return rowwise { inputs = { w = tensor('float', 'n', { grad = true }), slope = scalar('f32', { grad = true }), both = tensor('f32', 2, 'n', { grad = true }) },
  forward = function(x, at, p) return x * p.w(at.i) * p.slope + p.both(0, at.i) * p.both(1, 2) end }
