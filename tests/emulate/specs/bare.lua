return attention { mask_mod = function(at) return lt(at.q - at.kv, 20) & ge(at.q, at.kv) & ne(at.q % 5, 0) end, online_func = online_func {
  online_rowscales = { m = -inf, l = 0.0 },
  online_fwd = function(s, r)
    local m = max(r.m, detach(rowmax(s)))
    local a = where(gt(r.l, 0.0), exp(r.m - m), 0.0)
    local p = exp(s - m)
    return p, { m = m, l = r.l * a + rowsum(p) }, a
  end,
  online_fwd_epilogue = function(r) return 1.0 / r.l, { lse = r.m + log(r.l) } end,
  forward = function(s, final) return exp(s - final.lse) end } }
