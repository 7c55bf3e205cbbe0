return attention { inputs = { chosen = tensor('u8', 'h_kv', 'tall', 'wide') }, mask_mod = function(at, x)
  return ne(x.chosen(at.h_kv, min(at.row // 16, at.n_tall - 1), min(at.kv // 32, at.n_wide - 1)), 0)
end }
