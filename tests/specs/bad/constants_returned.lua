return rowwise {
  forward = function(x) -- error: forward: the constant -1e+39 is beyond the largest number of f32
    return x, { big = total(-1e39) }
  end,
}
