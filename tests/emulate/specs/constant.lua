return rowwise { inputs = { w = tensor('float', 'n', { grad = true }), idle = scalar('f32', { grad = true }),
    far = tensor('float', 'width', { grad = true }), gate = tensor('float', 'rows', 'n', { grad = true }),
    stopped = tensor('float', 'rows', 'n', { grad = true }), bias = tensor('f32', 'rows', { grad = true }) },
  forward = function(x, at, p) return p.w(at.i) + 0.0 * detach(x + p.stopped(at.row, at.i)) end }
