-- lost_value.lua: the gate of one value channel of head 0 is NaN at the first three tokens of a sequence
return linear_attention {
  inputs = { g = tensor("float", "b", "h", "t", "d_v", { grad = true }) },
  decay  = function(at, x)
    local g = x.g(at.b, at.h, at.t, at.j)
    return where(eq(at.h, 0) & eq(at.j, 5) & lt(at.pos, 3), sqrt(g - 1.0), g)
  end,
}
