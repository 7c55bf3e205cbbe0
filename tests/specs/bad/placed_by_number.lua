return rowwise {
  forward = function(x, at)
    return placed(x, at.i) -- error: takes a rank second
  end,
}
