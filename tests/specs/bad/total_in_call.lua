return rowwise {
  forward = function(v)
    return exp(total(rowsum(v))) -- error: got total(value), which stands in the table of results of rowwise
  end,
}
