-- lost_key.lua: the gate of one key channel of head 0 is NaN at the first three tokens of a sequence
return linear_attention {
  inputs = { g = tensor("float", "b", "h", "t", "d", { grad = true }) },
  decay  = function(at, x)
    local g = x.g(at.b, at.h, at.t, at.i)
    return where(eq(at.h, 0) & eq(at.i, 5) & lt(at.pos, 3), sqrt(g - 1.0), g)
  end,
}
