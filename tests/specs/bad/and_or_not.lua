return attention {
  mask_mod = function(at)
    local past = ge(at.q, at.kv)
    local near = lt(at.q - at.kv, 64) and past -- error: write a & b
    local first = eq(at.kv, 0) or near -- error: write a | b
    return not first -- error: write ~a
  end,
}
