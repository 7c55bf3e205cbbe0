return attention { inputs = { row = tensor('float', 'b', 'q'), column = tensor('float', 'h', 'kv'), on = tensor('u8', 'b', 'kv'),
    near = tensor('f16', 'h_kv', 'reach'), far = tensor('bf16', 'reach', 3), step = tensor('i32', 'q') },
  mask_mod = function(at, x) return ne(x.on(at.b, at.kv), 0) end,
  score_mod = function(s, at, x)
    local d = at.q - at.kv
    return s + x.row(at.b, at.row) * x.column(at.h, at.kv) + x.near(at.h_kv, clamp(d, 0, 39)) + x.far(clamp(-d, 0, 39), 1) * x.step(at.row)
  end }
