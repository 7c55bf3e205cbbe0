-- fails: forward = whole row: by forward
local wrong = online_func {
  online_rowscales = { m = -inf, l = 0.0 },
  online_fwd = function(s, r)
    local m = max(r.m, detach(rowmax(s)))
    local a, p = exp(r.m - m), exp(s - m)
    return p, { m = m, l = r.l * a + rowsum(p) }, a
  end,
  online_fwd_epilogue = function(r) return 1.0 / r.l, { lse = r.m + log(r.l) } end,
  forward = function(s, final, at) return exp(s - final.lse) * where(gt(at.q - at.kv, 4000), 2.0, 1.0) end,
}
return attention { mask_mod = causal, online_func = wrong }
