return activation(function(v, at)
  return v * at.n -- error: (local 'at'): this function is called without it; elementwise_weights, activation
end)
