return attention { -- error: input 'slopes' must be tensor
  inputs = { slopes = 3 },
  mask_mod = causal,
}
