-- row_scale.lua: scale = max |x| / most of each row, by which x goes into 8 bits: most = 448 for e4m3, 57344 for e5m2, 127 for i8; 1
-- where all of x is 0
return rowwise {
  inputs = { most = scalar("f32", { default = 448.0 }) },
  forward = function(x, at, p)
    local largest = rowmax(abs(x))
    return { scale = where(gt(largest, 0.0), largest / p.most, 1.0) }
  end,
}
