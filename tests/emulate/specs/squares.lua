return attention { online_func = online_func {
  online_rowscales = { m = -inf, l = 0.0, l2 = 0.0 },
  online_fwd = function(s, r)
    local m = max(r.m, detach(rowmax(s)))
    local a = exp(r.m - m)
    local p = exp(s - m)
    return p, { m = m, l = r.l * a + rowsum(p), l2 = r.l2 * a * a + rowsum(p * p) }, a
  end,
  online_fwd_epilogue = function(r) return 1.0 / r.l, { lse = r.m + log(r.l), n = r.l * r.l / r.l2 } end,
  forward = function(s, final) return exp(s - final.lse) end,
  combine = function(part)
    local m = splitmax(part.m)
    local a = exp(part.m - finite(m))
    return a, { m = m, l = splitsum(part.l * a), l2 = splitsum(part.l2 * a * a) }
  end } }
