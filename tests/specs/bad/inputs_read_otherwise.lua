return attention {
  inputs = { bias = tensor("f32", "h"), slope = scalar("f32") },
  score_mod = function(s, at, x)
    return s + x.bias[at.h] -- error: input 'bias' is read with parentheses: x.bias(i, ...)
  end,
  mask_mod = function(at, x)
    return gt(bias(at.h), 0.0) -- error: unknown name 'bias': inputs are read through the last parameter: x.bias(i, ...)
  end,
  query_mod = function(v, at, x)
    return v * slope -- error: unknown name 'slope': inputs are read through the last parameter: x.slope
  end,
  key_mod = function(v, at, x)
    return v * x.slope[at.h_kv] -- error: a traced value has no elements
  end,
  value_mod = function(v, at, x)
    return v * x.slopes -- error: there is no input 'slopes'; did you mean 'slope'?
  end,
  output_mod = function(v, at, x)
    return v * x.q(at.h) -- error: 'q' is an argument of attention and no input
  end,
}
