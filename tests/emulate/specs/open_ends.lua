return attention { inputs = { from = tensor('i32', 'b', 'q'), count = tensor('i32', 'b', 'q') },
  mask_mod = function(at, x) return lt(at.kv, x.from(at.b, at.row) + x.count(at.b, at.row)) end }
