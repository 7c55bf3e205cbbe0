return rowwise { along = -2, inputs = { b = tensor('float', 'rows', 'n') },
  forward = function(x, at, p)
    local w = f32(at.i % 7) * 0.25
    return w * revcumsum(w * x + p.b(at.row, at.i), where(eq(at.i % 700, 650), 1.0, 0.0))
  end }
