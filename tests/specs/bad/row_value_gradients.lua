return rowwise {
  inputs = { t = tensor("f32", "n", { grad = true }) },
  forward = function(v, at, x)
    local sum = rowsum(v)
    return v * x.t(at.i), { a = sum,
      da = sum * sum, -- error: the row value 'da' has the name of the gradient of the row value 'a'; rename it
      dt = sum * 2.0 } -- error: the row value 'dt' has the name of the gradient of the input 't'; rename it
  end,
}
