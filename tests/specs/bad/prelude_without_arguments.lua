return attention {
  score_mod = function(s, at)
    return where(causal(), s, 0.0) -- error: causal takes (at): is one of them missing?
  end,
  mask_mod = function(at) -- error: either takes (f, g): is one of them missing?
    return either(causal)(at)
  end,
}
