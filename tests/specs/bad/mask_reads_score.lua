return attention {
  mask_mod = function(at, x)
    return gt(x.s, 0.0) -- error: there is no input 's'
  end,
}
