-- scalars, tensors with named, free and fixed dims, options
return attention {
  inputs = {
    bias  = scalar("f32", { grad = true, default = 0.5 }),
    shift = scalar("i32", { default = 0 }),
    table = tensor("float", "h", 32, { grad = true }),
    doc   = tensor("i32", "b", "kv"),
    block = tensor("u8", "h", "block_rows", "block_cols", { optional = true, default = 1 }),
  },
  mask_mod = function(at, x)
    local q = clamp(at.q, 0, at.len_kv - 1)
    return eq(x.doc(at.b, q), x.doc(at.b, at.kv)) & ne(x.block(at.h, q // 64, at.kv // 64), 0)
  end,
  score_mod = function(s, at, x)
    return s + x.bias + x.table(at.h, clamp(at.q - at.kv + x.shift, 0, 31))
  end,
}
