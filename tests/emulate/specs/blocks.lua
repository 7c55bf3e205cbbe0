return attention { inputs = { block = tensor('u8', 'h', 'q', { optional = true, default = 1 }), shift = scalar('i32', { default = 0 }) },
  mask_mod = function(at, x) return ne(x.block(at.h, at.row), 0) & ge(at.q + x.shift, at.kv) end }
