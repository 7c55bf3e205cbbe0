return rowwise { forward = function(x, at)
    local top = rowmax(0.25 * x + tanh(x))
    local low = rowmin(x * 0.3 - 0.1)
    return x * top + low, { top = top, low = low }
  end }
