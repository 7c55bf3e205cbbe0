-- lost_token.lua: the gate of head 0 is NaN at the first three tokens of a sequence, so o is NaN everywhere
return linear_attention {
  inputs = { g = tensor("float", "b", "h", "t", { grad = true }) },
  decay  = function(at, x)
    local g = x.g(at.b, at.h, at.t)
    return where(eq(at.h, 0) & lt(at.pos, 3), sqrt(g - 1.0), g)
  end,
}
