return rowwise {
  forward = function(x)
    return exp(first(placed(x, rank(x)), 4, -inf)) -- error: which stands in the table of results of rowwise
  end,
}
