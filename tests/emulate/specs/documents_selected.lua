return attention { inputs = { doc = tensor('i32', 'b', 'kv'), chosen = tensor('u8', 'tall', 'wide') },
  mask_mod = function(at, x)
  return eq(x.doc(at.b, clamp(at.q, 0, at.len_kv - 1)), x.doc(at.b, at.kv))
    & ne(x.chosen(min(at.row // 16, at.n_tall - 1), min(at.kv // 16, at.n_wide - 1)), 0)
end }
