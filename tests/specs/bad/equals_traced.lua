return attention {
  mask_mod = function(at)
    return at.q == at.kv -- error: write eq(a, b)
  end,
}
