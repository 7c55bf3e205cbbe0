return rowwise { inputs = { seed = scalar('i32'), w = tensor('float', 'n', { grad = true }) },
  forward = function(x, at, p)
    local u = random(p.seed, 0, 3, at.row, at.i)
    local h = (at.row * 0x7feb352d ~ at.i * 40503) >> 20 & 15
    return where(ge(u, 0.5), 2.0 * x * p.w(at.i), 0.0) + 0.1 * h * x, { s = rowsum(x * u) }
  end }
