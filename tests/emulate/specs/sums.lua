return rowwise { inputs = { slope = scalar('f32', { grad = true }), table = tensor('float', 3, 'n', { grad = true }),
    bias = tensor('f32', 'rows', { grad = true }), pick = tensor('float', 'width', { grad = true }), far = tensor('f32', 2, 2, { grad = true }) },
  forward = function(x, at, p)
    local top = rowmax(x)
    local share = rowsum(p.table(1, at.i) * x) / at.n
    return silu(x * p.slope) * p.table(2, at.i) + share * p.bias(at.row) + p.pick(2) * top + p.far(1, 0),
      { share = share, top = top }
  end }
