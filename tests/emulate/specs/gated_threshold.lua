-- gated_threshold.lua: gates that leave 2^-46 of a state within 256 tokens, a little more or a little less of it, or 2^-46 within 64
return linear_attention {
  inputs    = { r = tensor("float", "b", "h", "t", { grad = true }) },
  query_mod = unit,
  key_mod   = unit,
  delta     = function(at, x) return sigmoid(x.r(at.b, at.h, at.t)) end,
  decay     = function(at)
    local each = -46.0 * 0.69314718055994531 / 256.0
    local near = where(eq(at.h % 4, 0), 1.0, where(eq(at.h % 4, 1), 0.999, 1.001))
    return each * where(eq(at.h % 4, 3), 4.0, near)
  end,
}
