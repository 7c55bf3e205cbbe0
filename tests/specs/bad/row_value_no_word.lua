return rowwise {
  forward = function(x) -- error: row values have names
    return x, { ["sum\n"] = rowsum(x) }
  end,
}
