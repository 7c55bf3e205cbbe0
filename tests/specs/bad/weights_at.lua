return attention {
  online_func = elementwise_weights(function(s, at)
    return s * at.h -- error: attempt to index a nil value (local 'at'): this function is called without it; elementwise_weights, activation and gated give their function values alone: what depends on at
  end),
}
