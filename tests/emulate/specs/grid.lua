return attention { inputs = { grid_h = scalar('i32'), grid_w = scalar('i32') }, mask_mod = function(at, x)
  local plane = x.grid_h * x.grid_w
  return le(abs(at.q // plane - at.kv // plane), 1) & le(abs(at.q % x.grid_w - at.kv % x.grid_w), 2)
    & le(abs(at.q % plane // x.grid_w - at.kv % plane // x.grid_w), 1)
end }
