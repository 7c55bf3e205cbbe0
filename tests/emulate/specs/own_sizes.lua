return attention { inputs = { page = tensor('i32', 'b', 'slots'), bias = tensor('f32', 'leaves') },
  mask_mod = function(at, x) return lt(at.kv, 3 * at.n_slots) & ge(at.q, at.kv) end,
  score_mod = function(s, at, x)
    return s + x.bias(clamp(x.page(at.b, min(at.kv // 3, at.n_slots - 1)), 0, at.n_leaves - 1))
  end,
  query_mod = function(v, at) return v * (0.01 * at.n_leaves) end }
