return rowwise { inputs = { table = tensor('float', 3, 'n', { grad = true }), wide = tensor('float', 2, 2, 1043, { grad = true }) },
  forward = function(x, at, p) return x * p.table(1, at.i) + p.table(2, at.i) * p.wide(1, 0, at.i) end }
