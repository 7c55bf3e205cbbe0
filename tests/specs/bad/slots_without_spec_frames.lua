return attention { -- error: both takes (f, g): is one of them missing?
  mask_mod = both(causal),
}
