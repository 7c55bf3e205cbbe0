return attention { -- error: qk2 = true goes without the input 'weight', whose dim 'd' may be that of either pair
  qk2 = true,
  inputs = { weight = tensor("f32", "h", "d") },
  key_mod = function(k, at, x) return k * x.weight(at.h_kv, at.i) end,
}
