return rowwise { along = -2, inputs = { gate = tensor('float', 'rows', 'n', { grad = true }) },
  forward = function(x, at, p)
    local decay = cumsum(-0.001 * sigmoid(p.gate(at.row, at.i)), 0.0)
    return cumexpsum(x, -decay, decay, 0.0) * p.gate(at.row, at.i)
  end }
