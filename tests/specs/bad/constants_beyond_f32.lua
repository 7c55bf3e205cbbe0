local huge = 1e30 * 1e30
return attention { -- error: scale: the constant 1e+40 is beyond the largest number of f32
  inputs = { a = scalar("f32", { default = -1e39 }) }, -- error: a: the constant -1e+39 is beyond the largest number
  scale = 1e40,
  score_mod = function(s, at)
    return 1e39 * tanh(s / 1e39) -- error: /: the constant 1e+39 is beyond the largest number of f32
  end,
  mask_mod = function(at)
    return gt(f32(at.q), huge) -- error: gt: the constant 1e+60 is beyond the largest number of f32
  end,
  key_mod = function(v)
    return v + 1e-50 -- error: +: the constant 1e-50 is below 1.2e-38
  end,
  value_mod = function(v)
    return where(gt(v, 0.0), 0.0 * v, v) * exp(-100.0) -- error: *: the constant 3.72008e-44 is below 1.2e-38
  end,
}
